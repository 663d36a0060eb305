"""Changing the inputs of a model, wherever a step takes them from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from vinedresser.replay.batch import Batch, mapped


@contextmanager
def changed_inputs(model: nn.Module, change: Callable[[Any], Any]) -> Iterator[None]:
    """Change the arguments of a model.

    Args:
        change: returns a tensor or plain value for the present one; see `mapped`.
    """

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        if kwargs is None:
            # Removed since the call began, in which torch still calls it.
            return None
        changed = mapped(Batch(args, kwargs, (), None), change)
        return changed.args, changed.kwargs

    handle = model.register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
