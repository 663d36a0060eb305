"""Notification before the backward pass of tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["listen_to_backwards"]


def listen_to_backwards(listener: Callable[[Sequence[Any]], object]) -> Callable[[], None]:
    """Call a listener before each `torch.autograd.backward` and `Tensor.backward`.

    A wrapper around these would add a frame to the traceback of every error. The helper that torch
    calls for the initial gradients is wrapped instead; it returns before the backward pass begins.

    Args:
        listener: receives the tensors; must not raise.

    Returns:
        A function that removes the listener.
    """
    namespace: Any = torch.autograd
    original = namespace._make_grads

    def make_grads(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        # `torch.autograd.grad` calls it, too.
        if sys._getframe(1).f_code.co_name == "backward":
            listener(tensors)
        return original(tensors, *args, **kwargs)

    def end() -> None:
        if namespace._make_grads is make_grads:
            namespace._make_grads = original

    namespace._make_grads = make_grads
    return end
