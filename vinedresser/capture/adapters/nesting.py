"""The parts of nested inputs and outputs of modules and layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["inside", "leaves"]


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


def leaves(value: Any, name: str, is_leaf: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in a nesting, each with a unique name.

    Args:
        value: a tensor, or a nesting of tuples, lists, mappings and dataclasses; other values in it
            are skipped.
        name: name of the value itself; nested tensors have a suffix such as "[hidden]".
        is_leaf: returns whether a value is a tensor.
    """
    if is_leaf(value):
        yield name, value
        return
    for key, item in inside(value):
        yield from leaves(item, f"{name}[{key}]", is_leaf)
