"""Seeing the end of a backward."""

from __future__ import annotations

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

    def begin(self, parameters: Iterable[Tensor]) -> None:
        """Look from now on, at the last of some parameters that gets a gradient.

        Of what is sharded no hook is called.
        """
        trained = [
            one
            for one in parameters
            if one.requires_grad and one.is_leaf and not (is_lazy(one) or hasattr(one, "to_local"))
        ]
        if self._handle is None and trained:
            self._handle = trained[-1].register_post_accumulate_grad_hook(self._reached)

    def remove(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _reached(self, _: Tensor) -> None:
        # As data parallelism does it: called when the whole backward is done.
        torch.autograd.Variable._execution_engine.queue_callback(self._ended)
