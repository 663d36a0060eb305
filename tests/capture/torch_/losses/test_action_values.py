"""Errors of the values of chosen actions are told from other errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from vinedresser.capture.torch_.losses.action_values import compares_actions

ROWS = torch.arange(6)
ACTIONS = torch.tensor([0, 2, 1, 1, 0, 2])
TARGETS = torch.linspace(0.0, 2.0, 6)


def outputs() -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(6, 3, generator=generator).requires_grad_() * 2


def gathered(values: Tensor) -> Tensor:
    return values.gather(1, ACTIONS[:, None])


def indexed(values: Tensor) -> Tensor:
    return values[ROWS, ACTIONS]


@pytest.mark.parametrize(
    "loss",
    [
        lambda values: F.mse_loss(gathered(values), TARGETS[:, None]),
        lambda values: F.mse_loss(TARGETS, gathered(values).squeeze()),
        lambda values: F.smooth_l1_loss(gathered(values).squeeze(1), TARGETS),
        lambda values: F.huber_loss(indexed(values), TARGETS),
        lambda values: (indexed(values) - TARGETS).pow(2).mean(),
        lambda values: ((TARGETS - gathered(values).view(-1)) ** 2).sum() / 6,
        # Weighted by priorities.
        lambda values: ((gathered(values)[:, 0] - TARGETS).pow(2) * torch.rand(6)).mean(),
        lambda values: 0.5 * (indexed(values) - TARGETS).abs().mean() + values.square().mean(),
        lambda values: F.mse_loss(values.gather(-1, ACTIONS[:, None]), TARGETS[:, None]),
    ],
)
def test_errors_of_chosen_actions(loss: Callable[[Tensor], Tensor]) -> None:
    assert compares_actions(loss(outputs()))


@pytest.mark.parametrize(
    "loss",
    [
        lambda values: F.mse_loss(values[:, 0], TARGETS),
        lambda values: F.cross_entropy(values, ACTIONS),
        # A cross-entropy by hand.
        lambda values: -gathered(values.log_softmax(1)).mean(),
        lambda values: values.logsumexp(1).sub(indexed(values)).mean(),
        # Rows at masked places, and boxes of matched queries.
        lambda values: F.mse_loss(values[ACTIONS > 0], torch.zeros(4, 3)),
        lambda values: F.l1_loss(values[ACTIONS.unique()], torch.zeros(3, 3)),
        lambda values: F.mse_loss(values[ACTIONS.flip(0), ACTIONS], TARGETS),
        # Both sides have a gradient.
        lambda values: F.mse_loss(gathered(values)[:, 0], values[:, 1]),
        # Rows of a table, as of embeddings.
        lambda values: F.mse_loss(values.gather(0, ACTIONS[None, :3]), torch.zeros(1, 3)),
        lambda values: (values[ROWS[:1], ACTIONS[:1]] - 1.0).pow(2).sum(),
    ],
)
def test_other_losses(loss: Callable[[Tensor], Tensor]) -> None:
    assert not compares_actions(loss(outputs()))
