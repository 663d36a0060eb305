"""The parts of nested inputs and outputs of modules and layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["inside"]


def inside(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return pairs of key and item of a mapping, tuple, list or dataclass; () for all else.

    The key is the mapping's key, the index, or the field's name.
    """
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, (tuple, list)):
        return enumerate(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((entry.name, getattr(value, entry.name)) for entry in dataclasses.fields(value))
    return ()
