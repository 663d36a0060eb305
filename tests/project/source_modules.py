"""The modules of the repository as syntax trees."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.paths import ROOT

__all__ = ["Module", "modules"]


class Module(NamedTuple):
    """A module's file, relative to the repository, and its syntax tree."""

    path: Path
    tree: ast.Module


@cache
def modules(package: str) -> dict[str, Module]:
    """Return the modules of a top-level package by dotted name."""
    found = {}
    for file in sorted(ROOT.glob(f"{package}/**/*.py")):
        path = file.relative_to(ROOT)
        parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
        found[".".join(parts)] = Module(path, ast.parse(file.read_text(encoding="utf-8")))
    return found
