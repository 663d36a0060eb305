"""The end of backward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from vinedresser.capture.torch_.last_parameter import LastParameter


class BackwardEnd:
    """Detects the end of backwards that reach given parameters.

    Args:
        ended: called at the end of a backward, on the thread that started it.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._handle: Any = None
        self._last = LastParameter(_gets_a_gradient)

    def begin(self, parameters: Callable[[], Iterable[Tensor]]) -> None:
        """Hook the last parameter that gets a gradient and is not sharded.

        Torch does not call hooks of sharded parameters.

        Args:
            parameters: return the parameters; called if the parameter hooked before is unusable.
        """
        if self._handle is not None:
            return
        last = self._last.of(parameters)
        if last is not None:
            self._handle = last.register_post_accumulate_grad_hook(self._reached)

    def remove(self) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _reached(self, _: Tensor) -> None:
        # Called when the whole backward is done, as in DistributedDataParallel.
        torch.autograd.Variable._execution_engine.queue_callback(self._ended)


def _gets_a_gradient(parameter: Tensor) -> bool:
    whole = not (is_lazy(parameter) or hasattr(parameter, "to_local"))
    return parameter.requires_grad and parameter.is_leaf and whole
