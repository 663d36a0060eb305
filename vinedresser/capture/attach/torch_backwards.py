"""Seeing of which tensors the backward is taken, however that is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["listen_to_backwards"]


def listen_to_backwards(listener: Callable[[Sequence[Any]], object]) -> Callable[[], None]:
    """Have a listener called before the backward of tensors is taken.

    A wrapper around the backward itself would stand in the traceback of every error in it. Torch
    asks this helper for the first gradients, and it has returned before the backward begins. By it
    `torch.autograd.backward` is seen, and `Tensor.backward`, which calls that.

    Args:
        listener: takes the tensors; it must not raise.

    Returns:
        What ends it.
    """
    namespace: Any = torch.autograd
    original = namespace._make_grads

    def make_grads(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        # `torch.autograd.grad` asks it, too.
        if sys._getframe(1).f_code.co_name == "backward":
            listener(tensors)
        return original(tensors, *args, **kwargs)

    def end() -> None:
        if namespace._make_grads is make_grads:
            namespace._make_grads = original

    namespace._make_grads = make_grads
    return end
