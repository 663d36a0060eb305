"""Multi-layer networks, drawn at random, and the faults of networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from corpus.draw import Draw

__all__ = ["FAULTS", "MLP_FAULTS", "blank", "mlp", "spoil"]

# Faults that every network with hidden layers can carry.
FAULTS = ("zero_init", "large_init", "small_init", "detached_graph")
# Faults of `mlp`.
MLP_FAULTS = (
    *FAULTS,
    *("dead_relu", "saturation", "vanishing", "dropout_too_high", "too_small_model"),
)
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "sigmoid": nn.Sigmoid,
}
# Bounds of the factor of the initial weights.
_FACTORS: dict[str, tuple[float, float]] = {
    "zero_init": (0.0, 0.0),
    "large_init": (10, 100),
    "small_init": (1e-4, 1e-3),
    "saturation": (30, 300),
}
_WITH: dict[str, Sequence[str]] = {
    "dead_relu": ("relu",),
    "saturation": ("tanh", "sigmoid"),
    "vanishing": ("tanh",),
}


def mlp(
    draw: Draw, inputs: int, outputs: int, *, depth: tuple[int, int] = (1, 4), most: int = 256
) -> nn.Sequential:
    """Return a network of dense layers.

    Args:
        draw: choices of the training.
        inputs: number of inputs.
        outputs: number of outputs.
        depth: bounds of the number of hidden layers.
        most: largest width of a hidden layer; the smallest is 24.
    """
    usual: Sequence[str] = ("relu", "relu", "relu", "tanh", "gelu", "elu", "silu", "leaky_relu")
    activation = draw.choice(draw.by_subject(_WITH, usual))
    count, width = draw.whole(*depth), draw.whole(24, most)
    shrinks = draw.chance(0.3)
    norm = draw.choice(["", "", "batch", "layer"])
    if draw.concerns("saturation", "vanishing", "dead_relu"):
        norm = ""
    dropout = draw.choice([0.0, 0.0, 0.0, 0.1, 0.3])
    if draw.has("dropout_too_high"):
        dropout = draw.amount.uniform(0.9, 0.98)
    if draw.has("too_small_model"):
        count, width = 1, 1
    if draw.has("vanishing"):
        activation, count, width = "sigmoid", draw.amount.randint(7, 12), 24
    layers: list[nn.Module] = []
    for place in range(count):
        size = max(16, width >> place) if shrinks and width > 1 else width
        layers.append(nn.Linear(inputs, size))
        if norm:
            layers.append(nn.BatchNorm1d(size) if norm == "batch" else nn.LayerNorm(size))
        layers.append(_ACTIVATIONS[activation]())
        if dropout:
            layers.append(nn.Dropout(dropout))
        inputs = size
    model = nn.Sequential(*layers, nn.Linear(inputs, outputs))
    spoil(draw, model)
    return model


@torch.no_grad()
def spoil(draw: Draw, model: nn.Module) -> None:
    """Give a network the drawn fault of its weights or its graph, if it has one."""
    weighted = [
        one for one in model.modules() if isinstance(one, nn.Linear | nn.Conv2d | nn.Conv1d)
    ]
    if draw.has("dead_relu"):
        lift = -draw.extent(5, 30)
        for module in weighted[:-1]:
            assert module.bias is not None, "the hidden layers of this network have a bias"
            module.bias.fill_(lift)
    if draw.has("detached_graph"):
        weighted[-1].register_forward_pre_hook(_detached)
    bounds = draw.by_fault(_FACTORS, None)
    if bounds:
        factor = draw.extent(*bounds) if bounds[0] else 0.0
        _scale(weighted[:-1] if draw.has("saturation") else weighted, factor)


def _scale(modules: Sequence[nn.Linear | nn.Conv2d | nn.Conv1d], factor: float) -> None:
    for module in modules:
        module.weight.mul_(factor)
        if module.bias is not None and factor < 1:
            module.bias.zero_()


def _detached(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0].detach(),)


@torch.no_grad()
def blank(draw: Draw, model: nn.Module) -> None:
    """Set all parameters of a model to zero if that is the drawn fault."""
    if draw.has("zero_init"):
        for one in model.parameters():
            one.zero_()
