"""Notification before each backward pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["listen_to_backwards"]

_AUTOGRAD: Any = torch.autograd
_Listener = Callable[[Sequence[Any]], object]


class _Listeners:
    """The listeners of a process, and the replacement of torch's function while there are any."""

    def __init__(self) -> None:
        self._listeners: tuple[_Listener, ...] = ()
        self._original: Callable[..., Any] = _AUTOGRAD._make_grads
        self._replaced = False

    def add(self, listener: _Listener) -> None:
        """Add a listener; the first one replaces the function."""
        self._listeners += (listener,)
        if not self._replaced:
            self._replaced = True
            self._original = _AUTOGRAD._make_grads
            _AUTOGRAD._make_grads = self._make_grads

    def discard(self, listener: _Listener) -> None:
        """Remove a listener; the last one restores the function."""
        self._listeners = tuple(one for one in self._listeners if one is not listener)
        # If another library has replaced it since, only that library can restore it.
        if not self._listeners and _AUTOGRAD._make_grads == self._make_grads:
            _AUTOGRAD._make_grads, self._replaced = self._original, False

    def _make_grads(self, tensors: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        # `torch.autograd.grad` calls it, too. torch.compile, which compiles what a compiled step
        # calls, cannot compile the look at the caller.
        if not torch.compiler.is_compiling() and sys._getframe(1).f_code.co_name == "backward":
            for listener in self._listeners:
                listener(tensors)
        return self._original(tensors, *args, **kwargs)


_LISTENERS = _Listeners()


def listen_to_backwards(listener: _Listener) -> Callable[[], None]:
    """Call a listener before each `torch.autograd.backward` and `Tensor.backward`.

    A wrapper around these would add a frame to the traceback of every error. The helper that torch
    calls for the initial gradients is wrapped instead; it returns before the backward pass begins.

    Args:
        listener: receives the tensors; must not raise.

    Returns:
        A function that removes the listener.
    """
    _LISTENERS.add(listener)
    return lambda: _LISTENERS.discard(listener)
