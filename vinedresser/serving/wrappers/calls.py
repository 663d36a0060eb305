"""Recording the calls of a Python function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from vinedresser.columns.rows import has_rows
from vinedresser.serving.recording.items import Item

__all__ = ["Sink", "call_inputs", "watch_function"]


class Sink(Protocol):
    """Receives calls of a model: a `RequestRecorder`, or what describes a baseline."""

    def begin(self, inputs: Any, ids: object = None) -> Item | None:
        """Return an item for `finish` if the call is to be recorded."""

    def finish(self, item: Item, outputs: Any, embedding: Any = None) -> None:
        """Record a call that the model has answered."""


def call_inputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the inputs of a call: its only argument with rows, or several of them by name.

    Args:
        args: positional arguments; their names are their positions.
    """
    named = {str(place): value for place, value in enumerate(args)} | dict(kwargs)
    rows = {name: value for name, value in named.items() if has_rows(value)}
    chosen = rows or named
    return next(iter(chosen.values())) if len(chosen) == 1 else chosen


def watch_function(function: Callable[..., Any], sink: Sink) -> Callable[..., Any]:
    """Return a function that does the same and records its calls; a coroutine function, too.

    Args:
        function: takes the inputs of requests and returns the outputs.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            item = sink.begin(call_inputs(args, kwargs))
            outputs = await function(*args, **kwargs)
            if item is not None:
                sink.finish(item, outputs)
            return outputs

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        item = sink.begin(call_inputs(args, kwargs))
        outputs = function(*args, **kwargs)
        if item is not None:
            sink.finish(item, outputs)
        return outputs

    return called
