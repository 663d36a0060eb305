"""Which objects a Python function has to do with."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["mentions"]


def mentions(function: Any, things: Iterable[Any]) -> bool:
    """Say whether a function can reach one of some objects by a name that it uses.

    That is a global or a variable of the function around it, or an attribute of the object whose
    method it is.

    Args:
        function: a Python function or bound method.
        things: the objects.
    """
    wanted = {id(thing) for thing in things}
    return any(id(one) in wanted for one in _reached(function))


def _reached(function: Any) -> Iterator[Any]:
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
            # A variable that has no value yet.
            continue
        # The method of an object comes as a function that holds the object weakly.
        if isinstance(inside, weakref.ref):
            inside = inside()
            yield from vars(inside).values() if hasattr(inside, "__dict__") else ()
        yield inside
