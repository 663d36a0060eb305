"""Properties of modules that decide about the form of their terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import grad as gradients

__all__ = ["bias_of", "channels_are_last", "input_gradient", "is_linear"]

_CONVOLUTIONS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: gradients.conv1d_input,
    nn.Conv2d: gradients.conv2d_input,
    nn.Conv3d: gradients.conv3d_input,
}
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FIRST = (
    *_CONVOLUTIONS, *_TRANSPOSED, nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm, nn.GroupNorm,
)  # fmt: skip
_LAST = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.MultiheadAttention, nn.Embedding)


def is_linear(module: nn.Module | None) -> bool:
    """Return whether a call of a module is a linear function and a bias."""
    linear = isinstance(module, (nn.Linear, *_CONVOLUTIONS, *_TRANSPOSED))
    # Reading the bias of a parametrized module would call the parametrization.
    return linear and module is not None and "parametrizations" not in module._modules


def bias_of(module: nn.Module, dim: int) -> Tensor | None:
    """Return the bias of a linear module, broadcastable to a result with ``dim`` axes."""
    bias: Any = module.bias
    if bias is None:
        return None
    plain: Tensor = bias.detach()
    return plain if isinstance(module, nn.Linear) else plain.view(-1, *[1] * (dim - 2))


def channels_are_last(module: nn.Module | None) -> bool | None:
    """Return whether a module's results have the channels as the last axis; None: unknown."""
    if isinstance(module, _LAST):
        return True
    return False if isinstance(module, _FIRST) else None


def input_gradient(module: nn.Module, value: Tensor, gradient: Tensor) -> Tensor | None:
    """Return the gradient of the argument of a linear module.

    Args:
        value: its argument, [K, ...].
        gradient: gradient of its result, [K, ...].

    Returns:
        In the shape of the argument; None if it is not known for this kind of module.
    """
    weight: Any = module.weight
    weight = weight.detach().to(gradient.dtype)
    if isinstance(module, nn.Linear):
        return gradient @ weight if value.shape[:-1] == gradient.shape[:-1] else None
    adjoint = next((one for kind, one in _CONVOLUTIONS.items() if isinstance(module, kind)), None)
    padding: Any = module.padding
    if adjoint is None or module.padding_mode != "zeros" or isinstance(padding, str):
        return None
    with torch.no_grad():
        return adjoint(
            value.shape,
            weight,
            gradient,
            stride=module.stride,
            padding=padding,
            dilation=module.dilation,
            groups=module.groups,
        )
