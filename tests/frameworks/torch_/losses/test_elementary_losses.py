"""Losses of elementary functions tell what they compare only where it is certain."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vinedresser.frameworks.torch_.losses.loss_graphs import loss_inputs
from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs

X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
SHARES = TARGETS.softmax(1)
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


def output() -> Tensor:
    torch.manual_seed(2)
    return nn.Linear(3, 3)(X)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("loss", "function"),
    [
        (lambda p: F.l1_loss(p, TARGETS), "l1_loss"),
        (lambda p: F.l1_loss(TARGETS, p, reduction="sum"), "l1_loss"),
        (lambda p: (p - TARGETS).abs().sum(1).mean(), "l1_loss"),
        (lambda p: ((p - TARGETS) ** 2).mean(), "mse_loss"),
        (lambda p: 0.5 * (TARGETS - p).square().sum() / 8, "mse_loss"),
        (lambda p: ((p - TARGETS) * (p - TARGETS)).mean(), None),
        (lambda p: torch.square(p.reshape(-1) - TARGETS.reshape(-1)).mean(), "mse_loss"),
    ],
)
def test_an_error_of_an_output_has_its_labels(
    loss: Callable[[Tensor], Tensor], function: str | None
) -> None:
    p = output()
    mark_outputs(p)
    found = loss_inputs(loss(p))
    if function is None:
        # Two differences, which only look the same.
        assert found is None
        return
    assert found is not None
    assert found.function == function
    assert torch.equal(found.predictions.reshape(8, 3), p.detach())
    torch.testing.assert_close(found.labels.reshape(8, 3), TARGETS)
    assert not found.predictions.requires_grad


def test_labels_that_are_integers_are_exact() -> None:
    p = output()
    classes = torch.arange(24.0).reshape(8, 3) * 7 - 30
    mark_outputs(p)
    found = loss_inputs(F.l1_loss(p, classes))
    assert found is not None
    assert torch.equal(found.labels, classes)


@pytest.mark.parametrize(
    "loss",
    [
        lambda p: F.l1_loss(p, 2 * p),
        # Weights of both signs.
        lambda p: ((p - TARGETS).abs() * TARGETS).mean(),
        lambda p: ((p - TARGETS) ** 3).mean(),
        lambda p: torch.sub(p, TARGETS, alpha=2).abs().mean(),
        # A broadcast by mistake.
        lambda p: (p[:, :1] - TARGETS[:, 0]).square().mean(),
        # Labels that the rounding of a prediction swallows.
        lambda p: (p * 0 + 1e9 - TARGETS).square().mean(),
    ],
)
def test_nothing_is_said_of_other_differences(loss: Callable[[Tensor], Tensor]) -> None:
    p = output()
    mark_outputs(p)
    assert loss_inputs(loss(p)) is None


@pytest.mark.parametrize("column", [True, False])
def test_an_error_of_outputs_that_are_broadcast_to_the_labels_keeps_their_shapes(
    *, column: bool
) -> None:
    p = 1.0 * (output()[:, :1] if column else output()[:, 0])
    labels = TARGETS[:, 0] if column else TARGETS[:, :1]
    mark_outputs(p)
    with pytest.warns(UserWarning, match="target size"):
        found = loss_inputs(F.l1_loss(p, labels))
    assert found is not None
    assert torch.equal(found.predictions, p.detach())
    torch.testing.assert_close(found.labels, labels)


def test_labels_that_rounding_swallows_are_not_guessed() -> None:
    p = output() * 1e9
    mark_outputs(p)
    assert loss_inputs((p - TARGETS).square().mean()) is None


def test_a_difference_of_anything_but_an_output_is_a_penalty() -> None:
    p = output()
    weight = nn.Parameter(X)
    mark_outputs(p)
    assert loss_inputs((weight - TARGETS).square().sum()) is None
    assert loss_inputs((output() - TARGETS).square().mean()) is None


@pytest.mark.parametrize(
    ("loss", "function"),
    [
        (lambda p: F.cross_entropy(p, SHARES), "cross_entropy"),
        (lambda p: -(SHARES * p.log_softmax(-1)).sum(1).mean(), "cross_entropy"),
        (lambda p: F.kl_div(p.log_softmax(1), SHARES, reduction="batchmean"), "kl_div"),
    ],
)
def test_probabilities_are_labels_of_a_softmax(
    loss: Callable[[Tensor], Tensor], function: str
) -> None:
    p = output()
    found = loss_inputs(loss(p))
    assert found is not None
    assert found.function == function
    assert torch.equal(found.labels, SHARES)
    assert torch.equal(found.predictions, p.detach().log_softmax(1))
    assert not found.negated
    ascended = loss_inputs(-loss(p))
    assert ascended is not None
    assert ascended.negated


@pytest.mark.parametrize(
    "loss",
    [
        lambda p: -p.log_softmax(1).gather(1, CLASSES[:, None]).mean(),
        lambda p: -p.log_softmax(-1).gather(-1, CLASSES.unsqueeze(-1)).squeeze(-1).mean(),
        lambda p: -p.log_softmax(1)[range(8), CLASSES].sum() / 8,
        lambda p: (p.logsumexp(1) - p.gather(1, CLASSES[:, None])[:, 0]).mean(),
        lambda p: (p.logsumexp(-1) - p[torch.arange(8), CLASSES]).mean(),
    ],
)
def test_the_classes_that_a_cross_entropy_picks_are_its_labels(
    loss: Callable[[Tensor], Tensor],
) -> None:
    p = output()
    value = loss(p)
    assert value.item() == pytest.approx(F.cross_entropy(p, CLASSES).item())
    found = loss_inputs(value)
    assert found is not None
    assert (found.function, found.negated) == ("cross_entropy", False)
    assert torch.equal(found.labels, CLASSES)
    assert F.cross_entropy(found.predictions, CLASSES).item() == pytest.approx(value.item())
    ascended = loss_inputs(-loss(p))
    assert ascended is not None
    assert ascended.negated


@pytest.mark.parametrize(
    "loss",
    [
        # A policy gradient, other rows, other scores, one row.
        lambda p: -(p.log_softmax(1).gather(1, CLASSES[:, None])[:, 0] * TARGETS[:, 0]).mean(),
        lambda p: -p.log_softmax(1)[CLASSES, CLASSES].mean(),
        lambda p: ((2 * p).logsumexp(1) - p[torch.arange(8), CLASSES]).mean(),
        lambda p: -p[:1].log_softmax(1)[[0], CLASSES[:1]].mean(),
        # Values of actions.
        lambda p: -p.gather(1, CLASSES[:, None]).mean(),
    ],
)
def test_nothing_is_said_of_other_picks(loss: Callable[[Tensor], Tensor]) -> None:
    p = output()
    mark_outputs(p)
    assert loss_inputs(loss(p)) is None


def test_a_softmax_over_the_rows_is_no_cross_entropy() -> None:
    p = output()
    found = loss_inputs(-p.log_softmax(0).gather(1, CLASSES[:, None]).mean())
    assert found is not None
    assert found.function == "nll_loss"
    assert torch.equal(found.labels, CLASSES)
    assert torch.equal(found.predictions, p.detach().log_softmax(0))


def test_picked_probabilities_without_a_logarithm_are_no_cross_entropy() -> None:
    p = output()
    found = loss_inputs(-p.softmax(1)[range(8), CLASSES].mean())
    assert found is not None
    assert (found.function, found.negated) == ("nll_loss", False)
    assert torch.equal(found.labels, CLASSES)
    assert torch.equal(found.predictions, p.detach().softmax(1))


@pytest.mark.parametrize(
    "loss",
    [
        # A policy gradient.
        lambda p: -(TARGETS * p.log_softmax(1)).mean(),
        lambda p: -((SHARES * p.log_softmax(1)).sum(1) * TARGETS[:, 0]).mean(),
        # An entropy.
        lambda p: -(p.softmax(1) * p.log_softmax(1)).sum(),
        lambda p: -(SHARES * p).sum(),
    ],
)
def test_nothing_is_said_of_other_products(loss: Callable[[Tensor], Tensor]) -> None:
    p = output()
    mark_outputs(p)
    assert loss_inputs(loss(p)) is None


def test_a_function_of_torch_says_what_is_compared_before_others() -> None:
    p = output()
    kept = F.kl_div(p.log_softmax(1), SHARES, reduction="batchmean")
    mark_outputs(p)
    found = loss_inputs(kept + 0.1 * (1 * F.cross_entropy(p, CLASSES)))
    assert found is not None
    assert torch.equal(found.labels, CLASSES)


@pytest.mark.parametrize("column", ["predictions", "labels"])
def test_a_difference_of_all_pairs_has_the_labels_of_the_rows(column: str) -> None:
    rows = torch.arange(5.0)
    p = 1.0 * torch.rand(5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    given, labels = (p[:, None], rows) if column == "predictions" else (p, rows[:, None])
    mark_outputs(given)
    found = loss_inputs((given - labels).abs().mean())
    assert found is not None
    assert torch.equal(found.predictions, given)
    assert torch.equal(found.labels, labels)
