"""Models for tests of saliency, and weights that leave no term at zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Computed", "classifier", "drawn"]


class Computed(nn.Module):
    """A function of layers and an input."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Any:
        return self.function(x, *self.layers)


def classifier(channels: int) -> nn.Module:
    """Return a mean over pixels and a linear layer for five classes."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))


def drawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """Return a model in float64 with random parameters and statistics."""
    random = torch.Generator().manual_seed(seed)
    model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3, generator=random)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(generator=random)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2, generator=random)
    return model
