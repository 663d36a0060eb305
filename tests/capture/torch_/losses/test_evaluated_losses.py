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
    labels = found[0].labels
    assert labels is not None
    assert torch.equal(labels, TARGETS)


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
    labels = [one.labels for one in found]
    assert len(labels) == 1
    assert labels[0] is not None
    assert torch.equal(labels[0], TARGETS)


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


PROBABILITIES = TARGETS.softmax(1)


@pytest.mark.parametrize(
    ("train", "evaluate"),
    [
        (
            lambda p: F.cross_entropy(p, PROBABILITIES),
            lambda p, how: F.cross_entropy(p, PROBABILITIES, reduction=how),
        ),
        (
            lambda p: F.kl_div(p.log_softmax(1), PROBABILITIES, reduction="batchmean"),
            lambda p, how: F.kl_div(p.log_softmax(1), PROBABILITIES, reduction=how),
        ),
        (
            lambda p: nn.KLDivLoss(reduction="batchmean")(p.log_softmax(1), PROBABILITIES),
            lambda p, how: F.kl_div(
                p.log_softmax(1), PROBABILITIES.log(), reduction=how, log_target=True
            ),
        ),
    ],
    ids=["cross_entropy", "kl_div", "log_target"],
)
def test_losses_of_probabilities_are_found_as_means_over_rows(
    train: Callable[[Tensor], Tensor], evaluate: Callable[[Tensor, str], Tensor]
) -> None:
    means: list[float] = []

    def evaluation(p: Tensor) -> None:
        means.append(train(p).item())
        evaluate(p, "sum")

    found = evaluated(lambda p: [train(p)], evaluation)
    assert values(found) == pytest.approx(means * 2)
    assert all(one.labels is not None for one in found)
    for one in found:
        torch.testing.assert_close(one.labels, PROBABILITIES)


@pytest.mark.parametrize(
    "loss",
    [
        lambda p: F.kl_div(p.log_softmax(1), PROBABILITIES, reduction="sum"),
        lambda p: 4 * F.kl_div(p.log_softmax(1), PROBABILITIES, reduction="batchmean"),
        lambda p: F.kl_div(p.log_softmax(1), PROBABILITIES, reduction="sum") / 5,
        lambda p: F.cross_entropy(p, PROBABILITIES, reduction="sum"),
    ],
)
def test_other_losses_of_probabilities_are_not_compared(loss: Callable[[Tensor], Tensor]) -> None:
    def evaluation(p: Tensor) -> None:
        F.kl_div(p.log_softmax(1), PROBABILITIES, reduction="batchmean")
        F.cross_entropy(p, PROBABILITIES)

    assert evaluated(lambda p: [loss(p)], evaluation) == []


class Shifted(nn.Module):
    """A language model that computes its loss itself, as those of transformers do.

    A label is compared with the output of the position before it, so one of each row has none. The
    loss is a mean, or the sum divided by a number of labels that the caller has counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 8)
        self.head = nn.Linear(8, 5)

    def forward(
        self, tokens: Tensor, labels: Tensor | None = None, count: int | None = None
    ) -> dict[str, Tensor]:
        logits = self.head(self.embedding(tokens))
        if labels is None:
            return {"logits": logits}
        kept, shifted = logits[..., :-1, :].flatten(0, 1), labels[..., 1:].flatten()
        if count is None:
            return {"loss": F.cross_entropy(kept, shifted), "logits": logits}
        total = F.cross_entropy(kept, shifted, reduction="sum")
        return {"loss": total / count, "logits": logits}


TOKENS = torch.randint(5, (6, 16), generator=torch.Generator().manual_seed(2))


def returned(
    model: nn.Module,
    losses: Callable[[nn.Module], list[Tensor]],
    evaluation: Callable[[nn.Module], object],
) -> list[Evaluated]:
    """Return the losses found in an evaluation after training steps of a model with a loss."""
    found: list[Evaluated] = []
    shield = Shield()
    observer = EvaluatedLosses(shield, found.append, lambda _: None)
    observer.watch(model)
    for _ in range(2):
        for loss in losses(model):
            observer.goes_backward(loss.grad_fn)
            loss.backward()
        observer.stepped()
    with torch.no_grad():
        evaluation(model)
    observer.close()
    assert shield.problems == {}
    return found


@pytest.mark.parametrize("parts", [1, 2])
def test_a_loss_of_shifted_labels_is_that_of_the_model(parts: int) -> None:
    def losses(model: nn.Module) -> list[Tensor]:
        # The labels of all micro-batches, also those that the shift leaves out.
        return [model(one, one, TOKENS.numel())["loss"] for one in TOKENS.chunk(parts)]

    printed: list[float] = []

    def evaluation(model: nn.Module) -> None:
        printed.append(model(TOKENS, TOKENS, TOKENS.numel())["loss"].item())
        # Without labels there is no loss.
        model(TOKENS)

    found = returned(Shifted(), losses, evaluation)
    assert values(found) == printed
    assert found[0].labels is not None
    assert torch.equal(found[0].labels, TOKENS[:, 1:].flatten())


@pytest.mark.parametrize(
    ("losses", "share"),
    [
        (lambda model: [model(TOKENS, TOKENS)["loss"]], 1),
        # As Accelerator.backward divides by the number of micro-batches.
        (lambda model: [model(one, one)["loss"] / 2 for one in TOKENS.chunk(2)], 1),
        (lambda model: [model(TOKENS, TOKENS)["loss"] / 2], None),
        (lambda model: [model(TOKENS, TOKENS, 1)["loss"]], None),
        (lambda model: [model(TOKENS, TOKENS)["loss"] + model.head.weight.square().sum()], None),
    ],
    ids=["mean", "micro-batches", "share", "sum", "penalty"],
)
def test_a_loss_that_the_model_returns_is_compared_if_the_training_minimizes_its_mean(
    losses: Callable[[nn.Module], list[Tensor]], share: float | None
) -> None:
    printed: list[float] = []

    def evaluation(model: nn.Module) -> None:
        printed.append(model(TOKENS, TOKENS)["loss"].item())

    found = returned(Shifted(), losses, evaluation)
    assert values(found) == ([] if share is None else printed)


class Hybrid(nn.Module):
    """Returns outputs and a loss of several terms, of which no function is known."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output = self.inner(x)
        error = (output - TARGETS).abs().clamp(max=1).mean()
        return output, error + 0.1 * output.square().mean()


def test_a_returned_mean_needs_no_known_function() -> None:
    printed: list[float] = []

    def evaluation(model: nn.Module) -> None:
        printed.append(model(X)[1].item())
        F.mse_loss(model(X)[0], TARGETS)

    found = returned(Hybrid(), lambda model: [model(X)[1]], evaluation)
    assert values(found) == printed * 2
    assert [one.labels for one in found] == [None, None]


def test_a_loss_that_changes_in_a_long_training_is_noticed() -> None:
    model = Shifted()
    found: list[Evaluated] = []
    observer = EvaluatedLosses(Shield(), found.append, lambda _: None)
    observer.watch(model)

    def train(steps: int, factor: float) -> None:
        for _ in range(steps):
            observer.goes_backward((factor * model(TOKENS, TOKENS)["loss"]).grad_fn)
            observer.stepped()

    def evaluate() -> int:
        found.clear()
        with torch.no_grad():
            model(TOKENS, TOKENS)
        return len(found)

    train(100, 1.0)
    assert evaluate() == 1
    train(1, 0.5)
    assert evaluate() == 0
    train(20, 0.5)
    train(16, 1.0)
    assert evaluate() == 1
