"""Labels 0 and 1 of losses that take -1 and 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.label_values import LabelSigns
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, step_record

Forward = Callable[[nn.Module, Tensor], tuple[Tensor, ...]]


def _twice(model: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    return model(rows[:, 0]), model(rows[:, 1])


def _at_once(model: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(model(rows).unbind(1))


def _scores(model: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(one.mean(1) for one in _at_once(model, rows))


def _one(model: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    return (model(rows[:, 0]).mean(1),)


def _taught(model: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    return model(rows[:, 0]), rows[:, 1, :3]


def _found(
    folder: Path, loss: nn.Module, forward: Forward, label: Callable[[Tensor], Tensor]
) -> list[tuple[str, str]]:
    """Train on pairs and return the kinds of findings and the tensors that show them."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rules = [LossOutputMismatch()]
    hook = Hook(folder, collections=capture_for(rules).collections)
    with hook.watch(model, loss, optimizer):
        for _ in range(20):
            optimizer.zero_grad()
            signs = torch.randint(2, (24,)) * 2.0 - 1
            loss(*forward(model, torch.randn(24, 2, 4)), label(signs)).backward()
            optimizer.step()
    findings = judge(open_run(folder), rules)
    return [(finding.evidence["kind"], finding.tensor) for finding in findings if finding.fault]


@pytest.mark.parametrize("forward", [_twice, _at_once])
def test_no_negative_pairs(forward: Forward, tmp_path: Path) -> None:
    found = _found(tmp_path / "run", nn.CosineEmbeddingLoss(), forward, lambda one: (one + 1) / 2)
    assert found == [("labels_without_sign", "labels/CosineEmbeddingLoss")]


@pytest.mark.parametrize(
    ("loss", "forward"),
    [
        (nn.MarginRankingLoss(1.0), _scores),
        (nn.SoftMarginLoss(), _one),
        (nn.HingeEmbeddingLoss(), _one),
    ],
)
def test_zeros_of_other_losses(loss: nn.Module, forward: Forward, tmp_path: Path) -> None:
    found = _found(tmp_path / "run", loss, forward, lambda one: (one > 0).float())
    assert found == [("labels_without_sign", f"labels/{type(loss).__name__}")]


def test_negative_labels_of_a_loss_of_counts(tmp_path: Path) -> None:
    found = _found(tmp_path / "run", nn.PoissonNLLLoss(), _one, lambda one: one)
    assert found == [("negative_counts", "labels/PoissonNLLLoss")]


def _with_ties(signs: Tensor) -> Tensor:
    return torch.where(torch.arange(len(signs)) % 3 == 0, 0.0, signs)


@pytest.mark.parametrize(
    ("loss", "forward", "label"),
    [
        (nn.CosineEmbeddingLoss(), _twice, lambda one: one),
        (nn.CosineEmbeddingLoss(), _taught, torch.ones_like),
        (nn.MarginRankingLoss(1.0), _scores, _with_ties),
        (nn.SoftMarginLoss(), _one, lambda one: one),
        (nn.BCEWithLogitsLoss(), _one, lambda one: (one > 0).float()),
        (nn.PoissonNLLLoss(), _one, lambda one: one + 1),
        (nn.TripletMarginLoss(), _twice, lambda one: torch.zeros(24, 3)),
    ],
)
def test_labels_as_the_loss_takes_them(
    loss: nn.Module, forward: Forward, label: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    assert _found(tmp_path / "run", loss, forward, label) == []


@pytest.mark.parametrize(
    ("loss", "shift", "kinds"),
    [
        ("mean_absolute_percentage_error", 0.0, ["divided_by_zero"]),
        ("MeanAbsolutePercentageError", 0.0, ["divided_by_zero"]),
        ("mean_absolute_percentage_error", 1.0, []),
        ("mean_absolute_error", 0.0, []),
    ],
)
def test_labels_of_0_in_an_error_in_percent(
    loss: str, shift: float, kinds: list[str], tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    run = make_run(
        tmp_path / "run",
        [
            step_record(
                step,
                scalars={"losses/loss": 50.0},
                tensors={
                    "labels/batch": generator.integers(0, 2, (32, 1)) + shift,
                    "predictions/batch": generator.uniform(0.1, 0.9, (32, 1)),
                },
            )
            for step in range(3)
        ],
        framework="keras",
        losses={"loss": {"type": loss, "settings": {}}},
    )
    findings = judge(run, [LossOutputMismatch()])
    assert [finding.evidence["kind"] for finding in findings] == kinds
    assert all("sigmoid and a binary" in finding.remedy for finding in findings)


def test_a_class_of_several_is_no_quantity_in_an_error_in_percent() -> None:
    classes = np.eye(3)[np.arange(32) % 3]
    found = LabelSigns().detect("loss", "mean_absolute_percentage_error", classes)
    assert found is not None
    assert found.remedy == "use softmax and a categorical cross-entropy"
