"""Walking over what layers take and return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vinedresser.capture.adapters.nesting import inside

__all__ = ["arguments", "leaves"]


def leaves(value: Any, name: str, is_leaf: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in a nesting, each with a name that tells it apart.

    Args:
        value: a tensor, or any nesting of tuples, lists, mappings and dataclasses; whatever else it
            holds is passed over.
        name: of the value itself; what is inside has the place added, such as "[hidden]".
        is_leaf: says whether a value is a tensor.
    """
    if is_leaf(value):
        yield name, value
        return
    for key, item in inside(value):
        yield from leaves(item, f"{name}[{key}]", is_leaf)


def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the arguments of a call as one nesting: the only one itself, or several by place.

    A keyword argument has its name as its place.
    """
    given = dict(enumerate(args)) | dict(kwargs)
    told = {key: one for key, one in given.items() if one is not None and key != "training"}
    return args[0] if args and set(told) <= {0} else told
