"""Optional packages of frameworks: importing them, and recognizing their objects without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vinedresser.errors import MissingDependency

__all__ = ["is_a", "needed"]


@contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Import within the block what is needed to watch something.

    Args:
        what: is watched.
        extra: of vinedresser, which brings the packages.

    Raises:
        MissingDependency: one of them is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingDependency(
            f"watching {what} needs {error.name}: pip install 'vinedresser[{extra}]'"
        ) from error


def is_a(model: Any, package: str, path: str) -> bool:
    """Say whether a model is of a class of a package, which is not imported for that."""
    found: Any = sys.modules.get(package)
    for part in path.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(model, found)
