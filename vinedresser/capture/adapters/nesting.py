"""Looking into what modules and layers take and return."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["inside"]


def inside(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return what a mapping, tuple, list or dataclass holds, each with its place; else nothing.

    Args:
        value: anything. The place is a key, a number or the name of a field.
    """
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, (tuple, list)):
        return enumerate(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((entry.name, getattr(value, entry.name)) for entry in dataclasses.fields(value))
    return ()
