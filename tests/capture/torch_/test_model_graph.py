"""What the graph of a loss tells: the order of the layers, and whether the model is linear."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from vinedresser.capture.hook.hook import Hook
from vinedresser.capture.torch_.weights.model_graph import (
    ModelGraph,
    has_redundant_weights,
    model_graph,
)
from vinedresser.store.reading.reader import open_run


class Two(nn.Module):
    """Two layers, the last one defined first, and something between them."""

    def __init__(self, between: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.last, self.first = nn.Linear(8, 3), nn.Linear(5, 8)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs [N, 3] of rows [N, 5]."""
        y: Tensor = self.last(self.between(self.first(x), x))
        return y


def told(model: nn.Module, x: Tensor) -> ModelGraph:
    loss = F.cross_entropy(model(x).flatten(1), torch.zeros(len(x), dtype=torch.int64))
    names = {id(one): name for name, one in model.named_parameters()}
    found = model_graph([loss], names)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "between",
    [
        lambda h, x: h,
        lambda h, x: F.dropout(h, 0.3),
        lambda h, x: 2 * h / 3,
        lambda h, x: F.batch_norm(h, None, None, training=True),
        lambda h, x: h[:, None].expand(-1, 4, -1).mean(1),
        lambda h, x: h + h.flip(1),
    ],
)
def test_linear_functions_between_two_layers(between: Callable[[Tensor, Tensor], Tensor]) -> None:
    graph = told(Two(between), torch.randn(6, 5))
    assert graph.linear == ("first.weight", "last.weight")
    assert graph.order == ("first.bias", "first.weight", "last.bias", "last.weight")


@pytest.mark.parametrize(
    "between",
    [
        lambda h, x: h.relu(),
        lambda h, x: h * (h > 0),
        lambda h, x: h.where(h > 0, 0.1 * h),
        lambda h, x: h * h,
        lambda h, x: h * x[:, :1],
        lambda h, x: torch.maximum(h, h.roll(1, 1)),
        lambda h, x: F.layer_norm(h, (8,)),
        # Straight through: the gradient of a sign is that of the identity.
        lambda h, x: h + (h.sign() - h).detach(),
        lambda h, x: h.clamp(min=0),
        lambda h, x: (h @ h.T) @ h,
        lambda h, x: torch.utils.checkpoint.checkpoint(torch.relu, h, use_reentrant=True),
    ],
)
def test_anything_else_may_be_an_activation(between: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert told(Two(between), torch.randn(6, 5)).linear == ()


def test_a_skip_connection_over_an_activation_is_not_linear() -> None:
    assert told(Two(lambda h, x: h + h.relu()), torch.randn(6, 5)).linear == ()


@pytest.mark.parametrize(
    ("widths", "redundant"),
    [
        ((5, 8, 1), True),
        ((5, 5, 5), True),
        # Of low rank.
        ((8, 2, 9), False),
        ((64, 16, 4, 16, 64), True),
        ((64, 4, 63), False),
    ],
)
def test_weights_of_low_rank_are_not_redundant(widths: tuple[int, ...], redundant: bool) -> None:
    layers = [nn.Linear(*pair) for pair in pairwise(widths)]
    assert has_redundant_weights([layer.weight for layer in layers]) is redundant
    # The same as bare matrices, [inputs, outputs].
    assert has_redundant_weights([layer.weight.T for layer in layers]) is redundant


def test_the_last_activation_belongs_to_the_loss() -> None:
    model = nn.Sequential(nn.Conv1d(1, 4, 3), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(4, 2))
    model.append(nn.Sigmoid())
    assert told(model, torch.randn(6, 1, 4)).linear == ("0.weight", "3.weight")


def test_a_large_graph_is_not_searched() -> None:
    model = Two(lambda h, x: h)
    y = model(torch.randn(6, 5))
    for _ in range(4000):
        y = y + 1
    names = {id(one): name for name, one in model.named_parameters()}
    assert model_graph([y.sum()], names) is None


def test_weights_of_several_models_are_no_series_of_one() -> None:
    first, last = nn.Linear(5, 8), nn.Linear(8, 3)
    names = {id(one): name for name, one in last.named_parameters()}
    found = model_graph([last(first(torch.randn(6, 5))).sum()], names)
    assert found == ModelGraph(("bias", "weight"), ())


def test_a_backward_of_another_model_tells_nothing() -> None:
    loss = nn.Linear(2, 1)(torch.ones(1, 2)).sum()
    assert model_graph([loss], {id(nn.Parameter(torch.ones(1))): "weight"}) is None


@pytest.mark.parametrize("linear", [True, False])
def test_the_record_of_a_run_has_both(linear: bool, tmp_path: Path) -> None:
    model = Two((lambda h, x: h) if linear else (lambda h, x: h.tanh()))
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss()
    with Hook(tmp_path / "run") as hook:
        hook.watch(model, loss=criterion, optimizer=optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            criterion(model(torch.randn(6, 5)), torch.zeros(6, 3)).backward()
            optimizer.step()
    info = open_run(tmp_path / "run").info
    assert info.order == [
        *("biases/first.bias", "weights/first.weight"),
        *("biases/last.bias", "weights/last.weight"),
    ]
    assert info.linear == (["weights/first.weight", "weights/last.weight"] if linear else [])
