"""The activation modules of torch."""

from __future__ import annotations

from types import MappingProxyType

from torch import nn

__all__ = ["activation_name"]

# The name of the function in torch.nn.functional by class.
_ACTIVATIONS = MappingProxyType(
    {
        nn.CELU: "celu",
        nn.ELU: "elu",
        nn.GELU: "gelu",
        nn.GLU: "glu",
        nn.Hardshrink: "hardshrink",
        nn.Hardsigmoid: "hardsigmoid",
        nn.Hardswish: "hardswish",
        nn.Hardtanh: "hardtanh",
        nn.LeakyReLU: "leaky_relu",
        nn.LogSigmoid: "logsigmoid",
        nn.LogSoftmax: "log_softmax",
        nn.Mish: "mish",
        nn.PReLU: "prelu",
        nn.ReLU: "relu",
        nn.ReLU6: "relu6",
        nn.RReLU: "rrelu",
        nn.SELU: "selu",
        nn.SiLU: "silu",
        nn.Sigmoid: "sigmoid",
        nn.Softmax: "softmax",
        nn.Softmax2d: "softmax",
        nn.Softmin: "softmin",
        nn.Softplus: "softplus",
        nn.Softshrink: "softshrink",
        nn.Softsign: "softsign",
        nn.Tanh: "tanh",
        nn.Tanhshrink: "tanhshrink",
        nn.Threshold: "threshold",
    }
)


def activation_name(module: nn.Module) -> str:
    """Return the name of a module's activation function, also for subclasses; "" if none."""
    found = (_ACTIVATIONS.get(base) for base in type(module).__mro__ if issubclass(base, nn.Module))
    return next((name for name in found if name), "")
