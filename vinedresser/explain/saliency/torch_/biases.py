"""Forms of implicit biases."""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["Bias", "Planes", "dense"]


class Planes(NamedTuple):
    """A bias of one value at some elements of a few planes of a result, and zero elsewhere.

    The planes of a result [batch, channels, ...] are its channels by example.

    Attributes:
        numbers: which planes, int64 [N], ascending.
        zero: where the bias is zero in them, bool [N, elements of a plane].
        value: the value, positive.
    """

    numbers: torch.Tensor
    zero: torch.Tensor
    value: float


# Broadcastable to the result, or the planes that are not zero.
Bias = torch.Tensor | Planes


def dense(bias: Bias, result: torch.Tensor) -> torch.Tensor:
    """Return a bias as a tensor that is broadcastable to its result."""
    if isinstance(bias, torch.Tensor):
        return bias
    values = result.new_zeros(result.shape[:2].numel(), bias.zero.shape[1])
    values[bias.numbers] = (~bias.zero).to(result.dtype) * bias.value
    return values.view(result.shape)
