"""Outcomes by a function that is a part of a loss, and by the classes of rows that are unknown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.store.finding import Finding
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

STEPS = 400


def judged(path: Path, records: Iterator[StepRecord], **setup: Any) -> list[Finding]:
    """Return the findings on a run whose loss has a function, but not necessarily its value."""
    losses = {"loss": setup}
    run = make_run(path / "run", records, losses=losses, framework="torch", total_steps=STEPS)
    return [one for one in judge(run, [Underfitting()]) if one.statistic]


def of_values(share: float, fall: float, *, inputs: int = 1) -> Iterator[StepRecord]:
    """Yield a training of linear targets with a penalty in its loss.

    Args:
        share: share of the targets that the predictions explain.
        fall: fall of the loss, as a share of its start.
        inputs: number of inputs; simple models read only one.
    """
    generator = np.random.default_rng(0)
    true = generator.normal(size=(6, 3))
    for step in range(STEPS):
        rows = generator.normal(size=(32, 6))
        labels = rows @ true
        loss = 50 * (1 - fall * step / STEPS) + generator.normal()
        tensors = {
            **{f"model_inputs/{place}": rows for place in range(inputs)},
            "labels/loss": labels,
            "predictions/loss": share * labels,
        }
        kept = tensors if step % 5 == 0 else {}
        yield step_record(step, scalars={"losses/loss": loss}, tensors=kept)


def test_a_part_that_simple_models_predict_better_is_poor(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, of_values(share=0.05, fall=0.1), function="mse_loss")
    assert "where simple models reach" in finding.seen
    assert finding.step < STEPS - 1


@pytest.mark.parametrize(
    ("share", "fall"),
    [(0.95, 0.1), (0.05, 0.7)],
    ids=["it is predicted", "the loss falls"],
)
def test_a_part_is_not_poor_if(share: float, fall: float, tmp_path: Path) -> None:
    assert judged(tmp_path, of_values(share, fall), function="mse_loss") == []


@pytest.mark.parametrize(
    ("share", "fall", "found"),
    [(0.0, 0.02, ["warning"]), (0.4, 0.02, []), (0.0, 0.5, [])],
    ids=["nothing is predicted", "some is predicted", "the loss falls"],
)
def test_a_part_whose_targets_are_not_predicted_by_the_end(
    share: float, fall: float, found: list[str], tmp_path: Path
) -> None:
    findings = judged(tmp_path, of_values(share, fall, inputs=2), function="mse_loss")
    assert [finding.severity for finding in findings] == found


def of_classes(classes: int, right: float) -> Iterator[StepRecord]:
    """Yield a training of classifying rows that are not captured.

    Args:
        classes: number of classes.
        right: score of the right class.
    """
    generator = np.random.default_rng(0)
    for step in range(STEPS):
        numbers = generator.integers(0, classes, 32)
        # At first, the scores are far from those of guessing.
        size = 1.5 if step < 20 else 0.1
        scores = size * generator.normal(size=(32, classes)) + right * np.eye(classes)[numbers]
        loss = functional.cross_entropy(torch.tensor(scores), torch.tensor(numbers)).item()
        scalars = {"losses/loss": loss}
        tensors = {"labels/loss": numbers, "predictions/loss": scores}
        yield step_record(step, scalars=scalars, tensors=tensors if step % 5 == 0 else {})


def test_several_classes_that_are_guessed_are_poor(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, of_classes(5, right=0.0), function="cross_entropy")
    assert "where guessing gives 0.2" in finding.seen


def test_two_classes_may_be_those_of_a_critic(tmp_path: Path) -> None:
    assert judged(tmp_path, of_classes(2, right=0.0), function="cross_entropy") == []


def test_several_classes_that_are_known_are_not_poor(tmp_path: Path) -> None:
    assert judged(tmp_path, of_classes(5, right=3.0), function="cross_entropy") == []


def test_classes_of_an_agent_are_its_actions(tmp_path: Path) -> None:
    records = of_classes(5, right=0.0)
    assert judged(tmp_path, records, function="cross_entropy", actions=True) == []
