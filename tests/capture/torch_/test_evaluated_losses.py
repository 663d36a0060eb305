"""Which losses of evaluations are comparable with the loss of the training."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.losses.evaluated_losses import Evaluated, EvaluatedLosses

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
CLASSES = torch.tensor([0, 2, -100, 1, 1, 0])
TARGETS = torch.rand(6, 3, generator=torch.Generator().manual_seed(1))
KERNEL = torch._C._nn.cross_entropy_loss


def evaluated(
    losses: Callable[[Tensor], list[Tensor]], evaluation: Callable[[Tensor], object]
) -> list[Evaluated]:
    """Return the losses found in an evaluation after a training step with some losses."""
    found: list[Evaluated] = []
    shield = Shield()
    observer = EvaluatedLosses(shield, found.append, lambda _: None)
    model = nn.Linear(3, 3)
    observer.watch(model)
    for loss in losses(model(X)):
        observer.goes_backward(loss.grad_fn)
    observer.stepped()
    with torch.no_grad():
        evaluation(model(X))
    # The next forward of the training.
    model(X)
    assert torch._C._nn.cross_entropy_loss is KERNEL
    assert shield.problems == {}
    return found


def values(found: list[Evaluated]) -> list[float]:
    return [one.value.item() for one in found]


@pytest.mark.parametrize(
    "train",
    [
        lambda p: [F.cross_entropy(p, CLASSES)],
        lambda p: [F.nll_loss(p.log_softmax(1), CLASSES)],
        # One of the six labels is ignored.
        lambda p: [F.cross_entropy(p, CLASSES, reduction="sum") / torch.tensor(5)],
        lambda p: [
            F.cross_entropy(p[:3], CLASSES[:3]) / 2,
            F.cross_entropy(p[3:], CLASSES[3:]) / 2,
        ],
    ],
)
@pytest.mark.parametrize(
    "evaluate",
    [
        lambda p: F.cross_entropy(p, CLASSES),
        lambda p: F.cross_entropy(p, CLASSES, reduction="sum"),
        lambda p: nn.NLLLoss(reduction="sum")(p.log_softmax(1), CLASSES),
    ],
)
def test_a_cross_entropy_is_found_as_a_mean(
    train: Callable[[Tensor], list[Tensor]], evaluate: Callable[[Tensor], Tensor]
) -> None:
    means: list[float] = []

    def evaluation(p: Tensor) -> None:
        means.append(F.cross_entropy(p, CLASSES).item())
        evaluate(p)

    assert values(evaluated(train, evaluation)) == pytest.approx(means * 2)


@pytest.mark.parametrize(
    "loss",
    [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits],
)
def test_errors_are_found_as_means(loss: Callable[..., Tensor]) -> None:
    means: list[float] = []

    def evaluation(p: Tensor) -> None:
        means.append(loss(p, TARGETS).item())
        loss(p, TARGETS, reduction="sum")

    found = evaluated(lambda p: [loss(p, TARGETS)], evaluation)
    assert values(found) == pytest.approx(means * 2)
    assert torch.equal(found[0].labels, TARGETS)


@pytest.mark.parametrize(
    ("by_hand", "function"),
    [
        (lambda p: ((p - TARGETS) ** 2).mean(), F.mse_loss),
        (lambda p: (TARGETS - p).abs().mean(), F.l1_loss),
    ],
)
def test_errors_by_hand_are_those_of_the_function(
    by_hand: Callable[[Tensor], Tensor], function: Callable[..., Tensor]
) -> None:
    found = evaluated(lambda p: [by_hand(p)], lambda p: function(p, TARGETS))
    assert [torch.equal(one.labels, TARGETS) for one in found] == [True]


@pytest.mark.parametrize(
    "by_hand",
    [
        lambda p: ((p - TARGETS) ** 2).sum(),
        lambda p: ((p - TARGETS) ** 3).mean(),
        lambda p: (p - 2 * p).square().mean(),
        lambda p: p.abs().mean(),
    ],
)
def test_other_means_by_hand_are_not_compared(by_hand: Callable[[Tensor], Tensor]) -> None:
    assert evaluated(lambda p: [by_hand(p)], lambda p: F.mse_loss(p, TARGETS)) == []


@pytest.mark.parametrize(
    "losses",
    [
        lambda p: [F.cross_entropy(p, CLASSES, reduction="sum")],
        lambda p: [F.cross_entropy(p, CLASSES, weight=torch.rand(3))],
        lambda p: [F.cross_entropy(p, CLASSES, label_smoothing=0.1)],
        lambda p: [F.cross_entropy(p, CLASSES) + p.square().mean()],
        lambda p: [F.cross_entropy(p, CLASSES), F.cross_entropy(p, CLASSES)],
        lambda p: [F.cross_entropy(p, CLASSES) / 2],
        lambda p: [F.cross_entropy(p, CLASSES, reduction="sum") / 6],
        lambda p: [F.cross_entropy(p, CLASSES), F.mse_loss(p, TARGETS)],
        lambda p: [F.mse_loss(p, TARGETS)],
    ],
    ids=["sum", "weights", "smoothed", "penalty", "twice", "share", "of_rows", "two", "other"],
)
def test_another_loss_in_training_is_not_compared(losses: Callable[[Tensor], list[Tensor]]) -> None:
    assert evaluated(losses, lambda p: F.cross_entropy(p, CLASSES)) == []


def test_another_loss_in_the_evaluation_is_not_compared() -> None:
    def evaluation(p: Tensor) -> None:
        F.cross_entropy(p, CLASSES, weight=torch.rand(3))
        F.cross_entropy(p, CLASSES, label_smoothing=0.1)
        F.cross_entropy(p, CLASSES, reduction="none")
        F.cross_entropy(p, TARGETS)
        with torch.enable_grad():
            F.cross_entropy(p, CLASSES)
        other = threading.Thread(target=F.cross_entropy, args=(p, CLASSES))
        other.start()
        other.join()

    assert evaluated(lambda p: [F.cross_entropy(p, CLASSES)], evaluation) == []


def test_errors_and_torchscript_are_those_of_torch() -> None:
    def evaluation(p: Tensor) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripted = torch.jit.script(nn.CrossEntropyLoss())
        assert torch.equal(scripted(p, CLASSES), F.cross_entropy(p, CLASSES))
        with pytest.raises(ValueError, match="batch_size"):
            F.cross_entropy(p, CLASSES[:2])

    assert len(evaluated(lambda p: [F.cross_entropy(p, CLASSES)], evaluation)) == 1
