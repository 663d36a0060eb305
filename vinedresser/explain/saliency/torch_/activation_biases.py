"""Implicit biases of activations in closed form, y - x y'."""

from __future__ import annotations

import math

import torch

from vinedresser.explain.saliency.torch_.biases import Bias, Planes
from vinedresser.frameworks.torch_.call import Call

__all__ = ["gelu", "hardtanh", "sigmoid", "silu", "tanh"]


def hardtanh(call: Call) -> Bias:
    """Return the value where the activation, such as ReLU6, saturates; else zero.

    It is computed from the result alone, since the argument may have been overwritten.
    """
    y = call.outputs[0]
    low, high = call["min_val"], call["max_val"]
    if low != 0 or y.numel() == 0:
        return torch.where((y <= low) | (y >= high), y, 0.0)
    # In a trained network few elements are saturated, and most channels have none.
    planes = y.reshape(y.shape[:2].numel(), -1)
    saturated = (planes.amax(1) >= high).nonzero().flatten()
    return Planes(saturated, planes[saturated] < high, float(high))


def silu(call: Call) -> torch.Tensor:
    """Return -y (x - y), since y' = s + y (1 - s) with y = x s."""
    y = call.outputs[0]
    bias: torch.Tensor = (y - call["self"]).mul_(y)
    return bias


def sigmoid(call: Call) -> torch.Tensor:
    """Return y - x y (1 - y)."""
    y = call.outputs[0]
    return (y - 1).mul_(call["self"]).add_(1).mul_(y)


def tanh(call: Call) -> torch.Tensor:
    """Return y - x (1 - y^2)."""
    y = call.outputs[0]
    return torch.addcmul(y, (y * y).sub_(1), call["self"])


def gelu(call: Call) -> torch.Tensor:
    """Return -x^2 p(x), where p is the density of the normal distribution.

    Raises:
        NotImplementedError: the activation is the approximation by tanh.
    """
    if call["approximate"] != "none":
        raise NotImplementedError("approximate GELU")
    x = call["self"]
    square = x * x
    density = (square * -0.5).exp_().mul_(-1 / math.sqrt(2 * math.pi))
    bias: torch.Tensor = density.mul_(square)
    return bias
