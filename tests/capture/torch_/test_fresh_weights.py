"""Which weights still have the random values of torch's initialisation."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from vinedresser.capture.torch_.weights.fresh_weights import fresh_weights

LAYERS: list[Callable[[], nn.Module]] = [
    lambda: nn.Linear(20, 30),
    lambda: nn.Conv2d(6, 8, 3, groups=2),
    lambda: nn.ConvTranspose2d(6, 8, 3),
    lambda: nn.Embedding(100, 8, padding_idx=0),
    lambda: nn.LSTM(12, 16, bidirectional=True),
    lambda: nn.GRUCell(12, 16),
    lambda: nn.MultiheadAttention(16, 4),
    lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32), 1),
]


def told(model: nn.Module) -> list[bool]:
    fresh = fresh_weights(model.modules())
    return [id(parameter) in fresh for parameter in model.parameters() if parameter.ndim >= 2]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("seed", range(5))
def test_new_layers_are_fresh(layer: Callable[[], nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    model = layer()
    assert all(told(model))
    assert all(told(copy.deepcopy(model).double()))


@pytest.mark.parametrize("layer", LAYERS)
def test_trained_layers_are_not_fresh(layer: Callable[[], nn.Module]) -> None:
    model = layer()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(30):
        # Whatever the layer computes, its weights move to other values.
        optimizer.zero_grad()
        torch.stack(
            [((parameter - 0.5) ** 2).sum() for parameter in model.parameters()]
        ).sum().backward()
        optimizer.step()
    assert not any(told(model))


def test_other_initial_values_are_not_fresh() -> None:
    layers = [nn.Linear(64, 64) for _ in range(4)]
    nn.init.orthogonal_(layers[0].weight)
    nn.init.normal_(layers[1].weight, std=0.02)
    nn.init.constant_(layers[2].weight, 0.1)
    layers[3].weight.data[5, 5] = torch.nan
    table = nn.Embedding.from_pretrained(torch.randn(200, 16) * 0.4)
    assert not any(told(nn.Sequential(*layers, table)))


def test_what_tells_nothing_is_not_fresh() -> None:
    small, whole = nn.Linear(3, 4), nn.Linear(20, 20)
    whole.weight = nn.Parameter(torch.ones(20, 20, dtype=torch.int64), requires_grad=False)
    layers = [small, whole, nn.LazyLinear(8), nn.Linear(20, 20, device="meta"), nn.LayerNorm(128)]
    assert fresh_weights(layers) == set()
