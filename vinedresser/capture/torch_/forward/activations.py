"""The activation modules of torch."""

from __future__ import annotations

import re
from types import MappingProxyType

from torch import nn

__all__ = ["ACTIVATIONS", "activation_name"]

_CLASSES = re.findall(
    r"\w+",
    "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax "
    "Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink "
    "Softsign Tanh Tanhshrink Threshold",
)
# Functions whose name is not that of their class in lower case.
_NAMES = {"LeakyReLU": "leaky_relu", "LogSoftmax": "log_softmax", "Softmax2d": "softmax"}
# The name of the function in torch.nn.functional by class.
ACTIVATIONS = MappingProxyType({getattr(nn, one): _NAMES.get(one, one.lower()) for one in _CLASSES})


def activation_name(module: nn.Module) -> str:
    """Return the name of a module's activation function, also for subclasses; "" if none."""
    found = (ACTIVATIONS.get(base) for base in type(module).__mro__ if issubclass(base, nn.Module))
    return next((name for name in found if name), "")
