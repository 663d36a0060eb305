"""Tensors that are trained without a module."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn


class BareTensors(nn.Module):
    """Holds trained tensors that belong to no module, as if they were its parameters.

    It is never called.

    Args:
        tensors: leaves of the autograd graph by name; names contain no dots.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        # Not parameters: these would be other tensors, with gradients of their own.
        self._parameters.update(tensors)  # type: ignore[arg-type]

    def is_bias(self, name: str) -> bool:
        """Return whether a tensor is a bias: a vector beside matrices."""
        shapes = {key: one.ndim for key, one in self._parameters.items() if one is not None}
        return shapes[name] < 2 <= max(shapes.values())
