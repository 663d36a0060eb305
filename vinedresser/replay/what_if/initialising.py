"""Initial weights that are unusual, and usual ones in their place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Unusual", "initialized", "unusual_weights"]

# Standard deviations of weights beyond the usual ones by these factors are unusual, and a mean of
# biases beyond this one.
_BELOW, _ABOVE = 2 / 3, 1.5
_BIAS = 1.0
# Gains of `torch.nn.init.calculate_gain`.
_GAINS = {"relu": math.sqrt(2), "leaky_relu": math.sqrt(2), "relu6": math.sqrt(2), "tanh": 5 / 3}


@dataclass(frozen=True)
class Unusual:
    """A parameter whose initial values are unusual.

    Attributes:
        name: its name in the model.
        std: standard deviation of usual values; 0 of biases.
        why: "small", "large", "equal" or "biases".
    """

    name: str
    value: nn.Parameter
    std: float
    why: str


def unusual_weights(model: nn.Module, activation: str) -> list[Unusual]:
    """Return the weights and biases of linear layers and convolutions with unusual values.

    Usual standard deviations of weights are those of the initializations of LeCun, Glorot and He,
    and of the default of torch. Rows that are all the same are unusual, and so are biases with a
    mean far from 0, but for those of the last layer, which may be those of the targets.

    Args:
        model: the model, with its initial weights.
        activation: name of its hidden activations, which determines usual values.
    """
    found = []
    layers = [
        (name, one)
        for name, one in model.named_modules()
        if isinstance(one, nn.Linear | nn.modules.conv._ConvNd | nn.RNNBase)
    ]
    for place, (name, layer) in enumerate(layers):
        is_last = place == len(layers) - 1
        for key, value in layer.named_parameters(prefix=name, recurse=False):
            if value.dim() > 1:
                fan_in = value[0].numel()
                gain = 1.0 if is_last or isinstance(layer, nn.RNNBase) else _gain(activation)
                # The default of recurrent layers depends on their own size only.
                size = layer.hidden_size if isinstance(layer, nn.RNNBase) else fan_in
                why = _unusual(value.detach(), fan_in, max(size, fan_in))
                if why:
                    found.append(Unusual(key, value, gain / math.sqrt(fan_in), why))
            elif not is_last and abs(float(value.detach().mean())) > _BIAS:
                found.append(Unusual(key, value, 0.0, "biases"))
    return found


@contextmanager
def initialized(weights: list[Unusual], seed: int) -> Iterator[None]:
    """Give parameters usual values; restoring the recorded state sets them back."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in weights:
            drawn = torch.randn(weight.value.shape, generator=generator) * weight.std
            weight.value.copy_(drawn.to(weight.value))
    yield


def _gain(activation: str) -> float:
    return _GAINS.get(activation, 1.0)


def _unusual(weight: Tensor, fan_in: int, size: int) -> str:
    fan_out = weight.numel() // weight.shape[1]
    if len(weight) > 1 and bool((weight == weight[:1]).all()):
        return "equal"
    glorot = math.sqrt(2 / (fan_in + fan_out))
    least = min(math.sqrt(1 / (3 * size)), glorot)
    largest = max(math.sqrt(2 / fan_in), glorot)
    std = float(weight.float().std(correction=0)) if weight.numel() > 1 else least
    return "small" if std < _BELOW * least else "large" if std > _ABOVE * largest else ""
