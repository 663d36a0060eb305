"""What the loss of a first step compares is told by its graph, and by its value."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the usual name)

from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs
from vinedresser.preflight.loss_function import function_of
from vinedresser.rules.signals.outcomes.guessing import loss_of_constants

ROWS, CLASSES = 16, 5
Loss = Callable[[Tensor, Tensor], Tensor]


def scores() -> Tensor:
    """Return scores [16, 5] that a model has computed."""
    made = torch.Generator().manual_seed(0)
    leaf = torch.randn(ROWS, CLASSES, generator=made).requires_grad_()
    outputs = leaf * 1.0
    mark_outputs(outputs)
    return outputs


def labels() -> Tensor:
    """Return classes [16]: four of the first, three of each other one."""
    return torch.arange(ROWS) % CLASSES


def one_hot() -> Tensor:
    """Return classes [16, 5] of zeros and ones."""
    return (labels()[:, None] == torch.arange(CLASSES)).float()


def by_hand(scores: Tensor, wanted: Tensor) -> Tensor:
    """Return the entropy of independent classes."""
    chance = scores.sigmoid()
    return -(wanted * chance.log() + (1 - wanted) * (1 - chance).log()).mean()


# Entropies of the classes, and of each class against the others; variance of each.
SHARES = torch.tensor([4, 3, 3, 3, 3]) / ROWS
ENTROPY = float(-(SHARES * SHARES.log()).sum())
BINARY = float(-(SHARES * SHARES.log() + (1 - SHARES) * (1 - SHARES).log()).mean())
VARIANCE = float((SHARES * (1 - SHARES)).mean())


@pytest.mark.parametrize(
    ("loss", "wanted", "name", "least"),
    [
        (F.cross_entropy, labels(), "cross_entropy", ENTROPY),
        (lambda out, to: F.nll_loss(out.log_softmax(1), to), labels(), "cross_entropy", ENTROPY),
        (
            lambda out, to: -(out.log_softmax(1) * to).sum() / len(to),
            one_hot(),
            "cross_entropy",
            ENTROPY,
        ),
        (F.binary_cross_entropy_with_logits, one_hot(), "binary_cross_entropy", BINARY),
        (by_hand, one_hot(), "binary_cross_entropy", BINARY),
        (F.mse_loss, one_hot(), "mean_squared_error", VARIANCE),
        (
            lambda out, to: ((out - to) ** 2).sum() / to.numel(),
            one_hot(),
            "mean_squared_error",
            VARIANCE,
        ),
        # The median of each class is 0.
        (lambda out, to: (out - to).abs().mean(), one_hot(), "mean_absolute_error", 1 / CLASSES),
    ],
)  # fmt: skip
def test_the_function_and_its_least_constant_loss(
    loss: Loss, wanted: Tensor, name: str, least: float
) -> None:
    found = function_of(loss(scores(), wanted))

    assert found is not None
    assert (found.identity.loss, found.compared.predictions.shape) == (name, (ROWS, CLASSES))
    assert len(found.compared.labels) == ROWS
    constant = loss_of_constants(*found)
    assert constant is not None
    assert math.isclose(constant, least, rel_tol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        lambda out, to: F.cross_entropy(out, to.argmax(1), label_smoothing=0.1),
        lambda out, to: F.cross_entropy(out, to.argmax(1), weight=torch.arange(1.0, 6.0)),
        lambda out, to: F.mse_loss(out, to, reduction="sum"),
        lambda out, to: F.mse_loss(out, to) + 0.1 * out.abs().mean(),
        lambda out, _: out.square().mean(),
        lambda out, to: F.mse_loss(out, to) * torch.nan,
    ],
)
def test_a_loss_that_is_no_mean_of_a_function_is_not_known(loss: Loss) -> None:
    assert function_of(loss(scores(), one_hot())) is None
