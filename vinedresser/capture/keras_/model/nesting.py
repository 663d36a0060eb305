"""Traversal of nested arguments and results of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vinedresser.capture.adapters.nesting import inside

__all__ = ["arguments", "leaves"]


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


def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the arguments of a call: a single one itself, or several by position or keyword."""
    given = dict(enumerate(args)) | dict(kwargs)
    relevant = {key: one for key, one in given.items() if one is not None and key != "training"}
    return args[0] if args and set(relevant) <= {0} else relevant
