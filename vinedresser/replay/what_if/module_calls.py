"""Following the calls of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def during_calls(
    model: nn.Module,
    begin: Callable[[Any], None],
    end: Callable[[Any], None],
) -> Iterator[None]:
    """Call functions at the beginning and at the end of each call of a module.

    Args:
        begin: gets its positional and keyword arguments.
        end: gets its output.
    """

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        begin((args, kwargs))

    def after(*called: Any) -> None:
        end(called[-1])

    handles = [
        model.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
        model.register_forward_hook(after),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
