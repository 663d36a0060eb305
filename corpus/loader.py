"""Loads the families of the corpus; `corpus/manifest.json` lists them without loading any."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from corpus.family import Family

__all__ = ["PARTS", "load", "modules"]

PARTS = ("families", "recipes", "sealed")


@cache
def modules(part: str) -> dict[str, str]:
    """Return the dotted names of the modules of a part by their last component, sorted.

    Args:
        part: one of `PARTS`. Each module in it and in its packages defines a ``FAMILY``.
    """
    package = import_module(f"corpus.{part}")
    found = walk_packages(package.__path__, f"{package.__name__}.")
    names = [one.name for one in found if not one.ispkg]
    return dict(sorted((name.rpartition(".")[2], name) for name in names))


@cache
def load(part: str) -> dict[str, Family]:
    """Return the families of a part by the names of their modules, in order of these.

    Args:
        part: one of `PARTS`.
    """
    return {name: import_module(module).FAMILY for name, module in modules(part).items()}
