"""Losses that a script defines itself and passes to a hook tell what function they apply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vinedresser import Hook, open_run

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(8) % 3
TARGETS = torch.rand(8, 3, generator=torch.Generator().manual_seed(1))


class Focal(nn.Module):
    """Lin et al., Focal Loss for Dense Object Detection, ICCV 2017."""

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        lost = F.cross_entropy(scores, classes, reduction="none")
        return ((1 - (-lost).exp()) ** 2 * lost).mean()


class RootMeanSquare(nn.Module):
    def forward(self, output: Tensor, targets: Tensor) -> Tensor:
        return ((output - targets) ** 2).mean().sqrt()


class OfProbabilities(nn.Module):
    """Compares a function of its arguments."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy(scores.sigmoid(), targets)


class Reversed(nn.Module):
    def forward(self, output: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(output, targets.flip(0))


class Counts(nn.Module):
    """No scalar with a gradient in evaluations, and no function of both arguments."""

    def forward(self, output: Tensor, targets: Tensor) -> Tensor:
        return output.square().mean() + 0 * targets.sum()


def as_module(hook: Hook, model: nn.Module, loss: nn.Module) -> Callable[..., Tensor]:
    hook.watch(model, loss=loss)
    return loss


def as_function(hook: Hook, model: nn.Module, loss: nn.Module) -> Callable[..., Tensor]:
    hook.watch(model)

    def applied(*given: Tensor) -> Any:
        return loss(*given)

    return hook.loss(applied, name=type(loss).__name__)


@pytest.mark.parametrize("watched", [as_module, as_function])
@pytest.mark.parametrize(
    ("loss", "labels", "function"),
    [
        (Focal(), CLASSES, "cross_entropy"),
        (RootMeanSquare(), TARGETS, "mse_loss"),
        (OfProbabilities(), TARGETS, None),
        (Reversed(), TARGETS, None),
        (Counts(), TARGETS, None),
    ],
)
def test_the_function_of_a_custom_loss(
    watched: Callable[..., Callable[..., Tensor]],
    *,
    loss: nn.Module,
    labels: Tensor,
    function: str | None,
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run") as hook:
        compare = watched(hook, model, loss)
        # An evaluation before the training does not tell.
        with torch.no_grad():
            compare(model.eval()(X), labels)
        for _ in range(2):
            optimizer.zero_grad()
            compare(model.train()(X), labels).backward()
            optimizer.step()
    assert hook.problems == []
    described = open_run(tmp_path / "run").info.losses[type(loss).__name__]
    assert described["custom"] is True
    assert described.get("function") == function
