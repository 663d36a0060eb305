"""Calling a function in the place of its caller, where its warnings belong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

from torch.overrides import handle_torch_function

__all__ = ["is_passing", "passed_on"]

_NAME = "<vinedresser>"
# Of a program that creates its code while it runs.
_MOST_PLACES = 1 << 14


def passed_on(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Call a function for the caller of the function that calls this one.

    Python shows and counts a warning at the line of the code that called the function, which is
    that of the user for a function of torch. An intercepting function would be in its place, so
    the call is made by a frame with file, line and globals of the caller.

    Args:
        function: the intercepted function.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is handle_torch_function.__code__:
        # A Python function that dispatches itself is called again: its caller counts.
        frame = frame.f_back and frame.f_back.f_back
    if frame is None:
        return function(*args, **kwargs)
    place = id(frame.f_code), frame.f_lasti
    known = _places.get(place)
    if known is None or known[1].__globals__ is not frame.f_globals:
        if len(_places) >= _MOST_PLACES:
            _places.clear()
        # The code is kept, so that no other one has its number.
        known = _places[place] = frame.f_code, _call_at(frame)
    return known[1](function, args, kwargs)


def is_passing(code: CodeType) -> bool:
    """Return whether a frame's code is that of a call by `passed_on`."""
    return code.co_name == _NAME


# Code that calls, and the function that calls in its place, by number and instruction of the code.
_places: dict[tuple[int, int], tuple[CodeType, FunctionType]] = {}


def _call_at(frame: FrameType) -> FunctionType:
    code = _plain.__code__.replace(
        co_filename=frame.f_code.co_filename,
        co_firstlineno=frame.f_lineno or 1,
        co_name=_NAME,
        co_qualname=_NAME,
    )
    return FunctionType(code, frame.f_globals)


# All of it is on the first line of its code.
_plain = lambda function, args, kwargs: function(*args, **kwargs)  # noqa: E731
