"""Seeing the end of a backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

__all__ = ["BackwardEnd"]


class BackwardEnd:
    """Tells when a backward that reaches one of some parameters is over.

    Args:
        ended: called then, on the thread that asked for the backward.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._handle: Any = None
        self._last: Callable[[], Tensor | None] = lambda: None

    def begin(self, parameters: Callable[[], Iterable[Tensor]]) -> None:
        """Look from now on, at the last of some parameters that gets a gradient.

        Of what is sharded no hook is called.

        Args:
            parameters: returns them; asked when the one that was looked at before is none any more.
        """
        if self._handle is not None:
            return
        last = self._last()
        if last is None or not _gets_a_gradient(last):
            trained = [one for one in parameters() if _gets_a_gradient(one)]
            if not trained:
                return
            last = trained[-1]
            self._last = weakref.ref(last)
        self._handle = last.register_post_accumulate_grad_hook(self._reached)

    def remove(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _reached(self, _: Tensor) -> None:
        # As data parallelism does it: called when the whole backward is done.
        torch.autograd.Variable._execution_engine.queue_callback(self._ended)


def _gets_a_gradient(parameter: Tensor) -> bool:
    whole = not (is_lazy(parameter) or hasattr(parameter, "to_local"))
    return parameter.requires_grad and parameter.is_leaf and whole
