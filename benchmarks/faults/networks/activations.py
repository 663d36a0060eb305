"""Activation functions by their names in Keras and PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["ACTIVATIONS", "LINEAR", "Exponential"]


class Exponential(nn.Module):
    """exp(x), which torch provides only as a function."""

    def forward(self, x: Tensor) -> Tensor:
        """Map [...] to [...]."""
        return torch.exp(x)


class Square(nn.Module):
    """x squared."""

    def forward(self, x: Tensor) -> Tensor:
        """Map [...] to [...]."""
        return x * x


LINEAR = frozenset({"linear", "identity", "none"})

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    # Keras's slope; torch's is 0.01.
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "leakyrelu": lambda: nn.LeakyReLU(0.2),
    "prelu": nn.PReLU,
    "elu": nn.ELU,
    "celu": nn.CELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "swish": nn.SiLU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "hard_swish": nn.Hardswish,
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "sigmoid": nn.Sigmoid,
    "hard_sigmoid": nn.Hardsigmoid,
    "log_sigmoid": nn.LogSigmoid,
    "tanh": nn.Tanh,
    "hard_tanh": nn.Hardtanh,
    "tanhshrink": nn.Tanhshrink,
    "softmax": lambda: nn.Softmax(dim=-1),
    "log_softmax": lambda: nn.LogSoftmax(dim=-1),
    "exponential": Exponential,
    "exp": Exponential,
    "square": Square,
}
