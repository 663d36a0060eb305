"""Losses as users write them by hand tell what they compare, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Normal

from vinedresser.frameworks.torch_.losses.loss_graphs import LossInputs, loss_inputs
from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
ONE_HOT = F.one_hot(CLASSES, 3).float()
SHARES = Y.softmax(1)
YES = (Y > 0).float()
MASK = torch.tensor([1.0, 1, 0, 1, 0, 1, 1, 1])
WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 1.5, 3.0, 0.1, 1.0, 1.0])
EPS = 1e-7


def output(width: int = 3) -> Tensor:
    torch.manual_seed(2)
    found: Tensor = nn.Linear(4, width)(X)
    mark_outputs(found)
    return found


def compared(loss: Callable[[Tensor], Tensor], width: int = 3) -> LossInputs | None:
    return loss_inputs(loss(output(width)))


def logits_to_loss(p: Tensor) -> Tensor:
    return -(YES * (p.sigmoid() + EPS).log() + (1 - YES) * (1 - p.sigmoid() + EPS).log())


@pytest.mark.parametrize(
    ("loss", "of"),
    [
        (lambda p: ((p[:, 0] - Y[:, 0]) ** 2).mean(), lambda p: p[:, 0]),
        (lambda p: (Y[:, :2] - p[:, 1:]).abs().mean(), lambda p: p[:, 1:]),
        (lambda p: (p.exp() - Y).square().sum(1).mean(), torch.exp),
        (lambda p: (p.chunk(3, 1)[1] - Y[:, :1]).square().mean(), lambda p: p[:, 1:2]),
        (lambda p: (2 * p.cumsum(1).cos() - Y).square().mean(), lambda p: 2 * p.cumsum(1).cos()),
        (lambda p: (p - Y).square().mean().sqrt(), lambda p: p),
        (lambda p: (p - Y).norm(dim=1).mean(), lambda p: p),
        (lambda p: (p @ Y[:3] - Y).square().mean(), lambda p: p @ Y[:3]),
        (lambda p: ((p - Y).norm(dim=1) / (Y.norm(dim=1) + 1)).mean(), lambda p: p),
        (lambda p: torch.stack([(p[:, 0] - Y[:, 0]) ** 2]).mean(), lambda p: p[:, 0]),
        (lambda p: ((p[:, 0] - Y[:, 0]) / Y[:, 0]).square().mean(), lambda p: p[:, 0]),
        (
            # Huber's loss.
            lambda p: torch.where((p - Y).abs() < 1, (p - Y) ** 2 / 2, (p - Y).abs() - 0.5).mean(),
            lambda p: p,
        ),
    ],
)
def test_an_error_of_values_that_follow_from_the_output(
    loss: Callable[[Tensor], Tensor], of: Callable[[Tensor], Tensor]
) -> None:
    found = compared(loss)
    assert found is not None
    assert found.function in ("mse_loss", "l1_loss")
    wanted = of(output().detach())
    torch.testing.assert_close(found.predictions, wanted)
    assert not found.predictions.requires_grad
    candidates = [Y, Y[:, 0], Y[:, :1], Y[:, :2]]
    assert any(
        candidate.shape == found.labels.shape and torch.allclose(candidate, found.labels, atol=1e-5)
        for candidate in candidates
    )


@pytest.mark.parametrize(
    ("loss", "kept"),
    [
        (lambda p: (WEIGHTS[:, None] * (p - Y) ** 2).mean(), WEIGHTS > 0),
        (lambda p: (WEIGHTS * ((p - Y) ** 2).mean(1)).sum() / WEIGHTS.sum(), WEIGHTS > 0),
        (lambda p: (MASK * ((p - Y) ** 2).mean(1)).sum() / MASK.sum(), MASK > 0),
        (lambda p: (((p - Y) * MASK[:, None]) ** 2).sum() / MASK.sum(), MASK > 0),
        (lambda p: ((p - Y) ** 2)[MASK > 0].mean(), MASK > 0),
        (lambda p: ((p - Y) ** 2 * YES).sum() / YES.sum(), YES > 0),
        (lambda p: torch.where(YES > 0, (p - Y) ** 2, torch.zeros(8, 3)).mean(), YES > 0),
        (lambda p: ((p - Y) ** 2).masked_select(YES > 0).mean(), YES > 0),
    ],
)
def test_what_a_mask_leaves_out_is_left_out(loss: Callable[[Tensor], Tensor], kept: Tensor) -> None:
    found = compared(loss)
    assert found is not None
    assert found.function == "mse_loss"
    torch.testing.assert_close(found.predictions, output().detach()[kept])
    torch.testing.assert_close(found.labels, Y[kept])


@pytest.mark.parametrize(
    "loss",
    [
        lambda mean, log: ((mean - Y[:, :2]) ** 2 / log.exp() + log).mean() / 2,
        lambda mean, log: ((mean - Y[:, :2]) ** 2 * (-log).exp() + log).mean() / 2,
        lambda mean, log: (((mean - Y[:, :2]) / log.exp()) ** 2 + log).mean() / 2,
        lambda mean, log: -Normal(mean, log.exp()).log_prob(Y[:, :2]).mean(),
        lambda mean, log: (0.5 * ((Y[:, :2] - mean) / log.exp()).pow(2) + log).sum(1).mean(),
    ],
)
def test_a_gaussian_likelihood_compares_the_mean(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    found = compared(lambda p: loss(*p.chunk(2, 1)), 4)
    assert found is not None
    assert (found.function, found.negated) == ("mse_loss", False)
    torch.testing.assert_close(found.predictions, output(4).detach()[:, :2])
    torch.testing.assert_close(found.labels, Y[:, :2])


def test_the_parts_of_a_split_that_a_model_returns_are_told_apart() -> None:
    mean, log = nn.Linear(4, 4)(X).chunk(2, 1)
    mark_outputs((mean, log))
    found = loss_inputs(((mean - Y[:, :2]) ** 2 * (-log).exp() + log).mean())
    assert found is not None
    assert torch.equal(found.predictions, mean)
    torch.testing.assert_close(found.labels, Y[:, :2])


@pytest.mark.parametrize(
    "loss",
    [
        lambda p: -Categorical(logits=p).log_prob(CLASSES).mean(),
        lambda p: -Categorical(probs=p.softmax(1)).log_prob(CLASSES).mean(),
        lambda p: -(p.softmax(1) + EPS).log()[range(8), CLASSES].mean(),
        lambda p: -p.softmax(1).gather(1, CLASSES[:, None]).clamp(min=EPS).log().mean(),
        lambda p: -(p.softmax(1)[torch.arange(8), CLASSES] + EPS).log().mean(),
        lambda p: -(p - p.logsumexp(1, keepdim=True))[torch.arange(8), CLASSES].mean(),
        lambda p: (
            -(
                p.log_softmax(1).gather(1, CLASSES[:, None])[:, 0]
                * torch.tensor([1.0, 2, 3])[CLASSES]
            ).mean()
        ),
    ],
)
def test_a_likelihood_of_classes(loss: Callable[[Tensor], Tensor]) -> None:
    found = compared(loss)
    assert found is not None
    assert (found.function, found.negated) == ("cross_entropy", False)
    assert torch.equal(found.labels, CLASSES)
    torch.testing.assert_close(
        found.predictions, output().detach().log_softmax(1), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize(
    "loss",
    [
        lambda p: -(ONE_HOT * (p.softmax(1) + EPS).log()).sum(1).mean(),
        lambda p: -(ONE_HOT * (p - p.logsumexp(1, keepdim=True))).sum() / 8,
        lambda p: (SHARES * (SHARES.log() - p.log_softmax(1))).sum(1).mean(),
    ],
)
def test_a_likelihood_of_shares(loss: Callable[[Tensor], Tensor]) -> None:
    found = compared(loss)
    assert found is not None
    assert found.function in ("cross_entropy", "kl_div")
    assert torch.equal(found.labels, SHARES if found.function == "kl_div" else ONE_HOT)
    torch.testing.assert_close(
        found.predictions, output().detach().log_softmax(1), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize(
    "loss",
    [
        lambda p: logits_to_loss(p).mean(),
        lambda p: -((1 - YES) * (1 - p.sigmoid()).log() + YES * p.sigmoid().log()).sum(1).mean(),
        lambda p: (-YES * p.sigmoid().log() - (1 - YES) * (1 - p.sigmoid()).log()).mean(),
        lambda p: -((YES > 0) * p.sigmoid().log() + (YES == 0) * (1 - p.sigmoid()).log()).mean(),
        lambda p: -(YES * F.logsigmoid(p) + (1 - YES) * F.logsigmoid(-p)).mean(),
        lambda p: -(YES * F.logsigmoid(p) + (1 - YES) * (F.logsigmoid(p) - p)).mean(),
        lambda p: (F.softplus(p) - YES * p).mean(),
        lambda p: (torch.log(1 + p.exp()) - p * YES).mean(),
        lambda p: (p.clamp(min=0) - p * YES + torch.log1p((-p.abs()).exp())).mean(),
        lambda p: F.softplus(-(2 * YES - 1) * p).mean(),
        lambda p: -F.logsigmoid((2 * YES - 1) * p).mean(),
        lambda p: -Bernoulli(logits=p).log_prob(YES).mean(),
        # A focal loss, and a weight of the positive labels.
        lambda p: ((1 - (-logits_to_loss(p)).exp()) ** 2 * logits_to_loss(p)).mean(),
        lambda p: ((1 + 3 * YES) * logits_to_loss(p)).mean(),
    ],
)
def test_a_likelihood_of_yes_or_no(loss: Callable[[Tensor], Tensor]) -> None:
    found = compared(loss)
    assert found is not None
    assert not found.negated
    assert torch.equal(found.labels, YES)
    p = output().detach()
    logits = found.function == "binary_cross_entropy_with_logits"
    assert logits or found.function == "binary_cross_entropy"
    torch.testing.assert_close(found.predictions, p if logits else p.sigmoid())
    ascended = compared(lambda p: -loss(p))
    assert ascended is not None


def test_a_loss_of_counts() -> None:
    counts = torch.tensor([0.0, 3, 1, 0, 2, 5, 1, 1])[:, None].expand(8, 3)
    found = compared(lambda p: (p.exp() - counts * p).mean())
    assert found is not None
    assert found.function == "poisson_nll_loss"
    assert torch.equal(found.labels, counts)
    torch.testing.assert_close(found.predictions, output().detach())


@pytest.mark.parametrize(
    ("loss", "predicted", "labels"),
    [
        (lambda p: (X[:, :3] + p - Y).square().mean(), lambda p: p, Y - X[:, :3]),
        (lambda p: (2 * p + 5 - Y).abs().mean(), lambda p: 2 * p, Y - 5),
        (lambda p: (Y - (X[:, :3] - p)).square().mean(), lambda p: -p, Y - X[:, :3]),
    ],
)
def test_a_constant_that_is_added_to_the_outputs_is_subtracted_from_the_labels(
    loss: Callable[[Tensor], Tensor], predicted: Callable[[Tensor], Tensor], labels: Tensor
) -> None:
    found = compared(loss)
    assert found is not None
    torch.testing.assert_close(found.predictions, predicted(output().detach()))
    torch.testing.assert_close(found.labels, labels)


def test_the_last_of_several_stages_with_the_same_labels() -> None:
    torch.manual_seed(3)
    first = nn.Linear(4, 3)(X)
    second = Y + 0.1 * first
    mark_outputs([first, second])
    losses = [(one - Y).square().mean() for one in (first, second)]
    found = loss_inputs(torch.stack(losses).mean())
    assert found is not None
    assert torch.equal(found.predictions, second)


@pytest.mark.parametrize(
    "loss",
    [
        # Quantiles and expectiles.
        lambda p: torch.where(p > Y, 0.1 * (p - Y), 0.9 * (Y - p)).mean(),
        lambda p: (torch.where(p > Y, 0.1, 0.9) * (p - Y) ** 2).mean(),
        # Advantages.
        lambda p: -(Categorical(logits=p).log_prob(CLASSES) * Y[:, 0]).mean(),
        lambda p: -(Categorical(logits=p).log_prob(CLASSES) * WEIGHTS).mean(),
        lambda p: (Y * (p - SHARES) ** 2).mean(),
        # Statistics of the outputs, and penalties.
        lambda p: (p.mean(0) - Y.mean(0)).square().mean(),
        lambda p: (p.sum(1) - torch.ones(8)).square().mean(),
        lambda p: (p.softmax(1).sum(0) - torch.full((3,), 8 / 3)).square().sum(),
        # A kernel, a ranking, pairs, values of actions.
        lambda p: (-(p - Y).square().sum(1)).exp().mean(),
        lambda p: -F.logsigmoid(p[:, 0] - p[:, 1]).mean(),
        lambda p: torch.cdist(p, Y).mean(),
        lambda p: -(p.gather(1, CLASSES[:, None])).mean(),
        # Products with constants that are neither probabilities nor masks.
        lambda p: (F.softplus(p) - 3 * p * Y).mean(),
        lambda p: -(Y * p.sigmoid().log() + (1 - Y) * (1 - p.sigmoid()).log()).mean(),
        lambda p: -(YES * p.sigmoid().log() + (1 - YES) * (1 - (2 * p).sigmoid()).log()).mean(),
        # A constant was added inside, which autograd does not save.
        lambda p: ((p + Y).exp() - Y.roll(1, 0)).square().mean(),
        # A target that is the same for all rows is a penalty, if there are other terms.
        lambda p: (p - 1).square().mean() + p.exp().mean(),
    ],
)
def test_nothing_is_said_of_losses_that_compare_otherwise(
    loss: Callable[[Tensor], Tensor],
) -> None:
    assert compared(loss) is None


def test_an_output_that_was_overwritten_is_not_an_output() -> None:
    changed = nn.Linear(4, 3)(X)
    mark_outputs(changed)
    changed.mul_(2)
    assert loss_inputs((changed - Y).square().mean()) is None


def test_nothing_is_said_if_a_saved_tensor_would_run_the_code_of_the_user() -> None:
    p = output()
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, pytest.fail):
        loss = ((p - Y)[MASK > 0] ** 2).mean() + logits_to_loss(p).mean()
    assert loss_inputs(loss) is None
