"""Gradients that are cleared again and again, though their optimizer has never taken a step."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch
from torch import Tensor

# Number of backward passes, each after gradients were cleared. Gradients that are accumulated are
# not cleared, however many passes there are.
_PASSES = 40
_SAMPLED = 8


class UnappliedGradients:
    """Whether weights that an optimizer should update are the same as at the start.

    Torch does not count writes through ``data``, so some elements of each are compared.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[weakref.ref[Tensor], Tensor]] = []

    def begin(self, parameters: Iterable[Tensor]) -> None:
        """Keep a few elements of the parameters, of any shape, before the first backward pass."""
        self._samples = [
            (weakref.ref(parameter), _sample(parameter))
            for parameter in parameters
            if _is_plain(parameter)
        ]

    def found(self, passes: int) -> bool:
        """Return whether optimizer.step() is missing; waits for the device.

        Args:
            passes: number of backward passes that began without gradients.
        """
        if passes < _PASSES or not self._samples:
            return False
        pairs = [(parameter(), before) for parameter, before in self._samples]
        return all(one is not None and torch.equal(_sample(one), before) for one, before in pairs)

    def forget(self) -> None:
        """Release the elements; a step has been taken."""
        self._samples = []


def _sample(parameter: Tensor) -> Tensor:
    """Return a copy of up to eight elements, without copying a large parameter."""
    view = parameter.detach()
    while view.dim() > 1:
        view = view[0]
    return (view[:_SAMPLED] if view.dim() else view).clone()


def _is_plain(parameter: Tensor) -> bool:
    """Return whether the elements of a parameter are in this process."""
    plain = type(parameter.data) is Tensor and not hasattr(parameter, "to_local")
    return plain and parameter.layout is torch.strided and parameter.numel() > 0
