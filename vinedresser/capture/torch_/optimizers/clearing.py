"""Whether gradients are cleared between the steps of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from vinedresser.capture.torch_.last_parameter import LastParameter


class GradientClearing:
    """Notices whether the gradients of a step are added to those of the step before.

    It looks at the gradient that one parameter has before each addition to it. The node of the
    autograd graph that adds is hooked, not the parameter, which may be saved or copied.

    Args:
        guard: wraps a function so that its errors do not reach the training.

    Attributes:
        fresh: number of additions since the start of the watch before which there was no gradient.
    """

    def __init__(self, guard: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
        self._look = guard(self._looked)
        self._parameter = LastParameter(_is_plain)
        self._handle: Any = None
        self._adds: Any = None
        self._kept: Tensor | None = None
        self.fresh = 0

    @property
    def watches(self) -> bool:
        """Whether a step is being watched."""
        return self._handle is not None

    def begin(self, parameters: Callable[[], Iterable[Tensor]]) -> None:
        """Watch a step from its first forward on.

        Args:
            parameters: return those that the optimizer updates; called if there is none to look at.
        """
        self.end()
        self.fresh = 0
        parameter = self._parameter.of(parameters)
        if parameter is None:
            return
        with torch.enable_grad():
            node: Any = parameter.view_as(parameter).grad_fn
        # Torch keeps the node only while it is in use.
        self._adds = node.next_functions[0][0]
        self._handle = self._adds.register_prehook(self._look)

    def end(self) -> Tensor | None:
        """End the watch; return whether gradients were kept, bool [], or None without any."""
        if self._handle is None:
            return None
        self._handle.remove()
        self._handle = self._adds = None
        kept, self._kept = self._kept, None
        return kept

    def _looked(self, _: Any) -> None:
        parameter = self._parameter.same()
        if parameter is None:
            return
        before = parameter.grad
        self.fresh += before is None
        # Stays on the device: its value would have to be waited for.
        kept = torch.zeros((), dtype=torch.bool) if before is None else before.any()
        # The gradients of another loss may be added in between, and cleared before the own one.
        self._kept = kept if self._kept is None else self._kept.to(kept.device) & kept


def _is_plain(parameter: Tensor) -> bool:
    """Return whether a parameter gets a whole, dense gradient in the default stream."""
    return (
        parameter.requires_grad
        and parameter.is_leaf
        and type(parameter.data) is Tensor
        and not hasattr(parameter, "to_local")
        and (parameter.grad is None or parameter.grad.layout is torch.strided)
        and (not parameter.is_cuda or torch.cuda.current_stream() == torch.cuda.default_stream())
    )
