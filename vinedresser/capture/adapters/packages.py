"""Optional framework packages: importing them, and recognizing their objects without import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vinedresser.errors import MissingDependency

__all__ = ["is_a", "needed"]


@contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Turn an ImportError in the block into an error that names the missing extra.

    Args:
        what: description of the object to watch.
        extra: extra of vinedresser that installs the packages.

    Raises:
        MissingDependency: a package is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingDependency(
            f"watching {what} needs {error.name}: pip install 'vinedresser[{extra}]'"
        ) from error


def is_a(model: Any, package: str, path: str) -> bool:
    """Return whether an object is an instance of a package's class, without importing it.

    Args:
        package: name of the package.
        path: path of the class in the package, such as "nn.Module".
    """
    found: Any = sys.modules.get(package)
    for part in path.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(model, found)
