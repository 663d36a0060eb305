"""Wrapping a loss function to capture its values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from vinedresser.errors import ConfigError

__all__ = ["LossValue", "watched_loss"]

P = ParamSpec("P")
R = TypeVar("R")

# Called with the loss's name, its function, the value, and the function's args and kwargs.
LossValue = Callable[[str, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], object]


def watched_loss(function: Callable[P, R], name: str | None, take: LossValue) -> Callable[P, R]:
    """Return a wrapper of a loss function that passes on its values.

    Args:
        function: the loss function.
        name: name of the loss; None: name of the function.
        take: called with each value.

    Raises:
        ConfigError: the function has no name, and none is given.
    """
    inner = getattr(function, "func", function)
    known = str(name or getattr(inner, "__name__", "<no name>"))
    if "<" in known:
        raise ConfigError("loss: the function has no name; pass name=…")

    @functools.wraps(function)
    def watched(*args: P.args, **kwargs: P.kwargs) -> R:
        value = function(*args, **kwargs)
        take(known, function, value, args, kwargs)
        return value

    return watched
