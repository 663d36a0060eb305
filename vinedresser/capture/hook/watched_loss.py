"""A loss function whose values are captured."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from vinedresser.errors import ConfigError

__all__ = ["LossValue", "watched_loss"]

P = ParamSpec("P")
R = TypeVar("R")

# The name of the loss, its function, the value, and what the function was called with.
LossValue = Callable[[str, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], object]


def watched_loss(function: Callable[P, R], name: str | None, take: LossValue) -> Callable[P, R]:
    """Return a loss function that hands over each of its values.

    Args:
        function: the loss function.
        name: in the run; None: the function's own.
        take: what the values are handed to.

    Raises:
        ConfigError: the function has no name of its own.
    """
    inner = getattr(function, "func", function)
    known = str(name or getattr(inner, "__name__", "<no name>"))
    if "<" in known:
        raise ConfigError("loss: the function has no name of its own; give one, name=…")

    @functools.wraps(function)
    def watched(*args: P.args, **kwargs: P.kwargs) -> R:
        value = function(*args, **kwargs)
        take(known, function, value, args, kwargs)
        return value

    return watched
