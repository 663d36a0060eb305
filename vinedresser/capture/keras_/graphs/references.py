"""Detection of the objects that a Python function references."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["references"]


def references(function: Any, objects: Iterable[Any]) -> bool:
    """Return whether a function references one of some objects.

    Globals that it names, closure variables and, for a method, the attributes of its object count.

    Args:
        function: a Python function or bound method.
        objects: the objects.
    """
    wanted = {id(thing) for thing in objects}
    return any(id(one) in wanted for one in _referenced(function))


def _referenced(function: Any) -> Iterator[Any]:
    owner = getattr(function, "__self__", None)
    if owner is not None:
        yield owner
        yield from vars(owner).values() if hasattr(owner, "__dict__") else ()
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    names = code.co_names if code is not None else ()
    known = getattr(plain, "__globals__", {})
    yield from (known[name] for name in names if name in known)
    for cell in getattr(plain, "__closure__", None) or ():
        try:
            inside = cell.cell_contents
        except ValueError:
            # A variable without a value yet.
            continue
        # TensorFlow wraps methods in functions that hold the object by a weak reference.
        if isinstance(inside, weakref.ref):
            inside = inside()
            yield from vars(inside).values() if hasattr(inside, "__dict__") else ()
        yield inside
