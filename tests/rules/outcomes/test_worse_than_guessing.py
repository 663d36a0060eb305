"""A run that ends far above the losses of guessing is poor, whatever simple models reach."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.store.records import POLICY_GRADIENT
from vinedresser.testing.runs import make_run, step_record

STEPS = 300


def found(
    path: Path,
    *,
    classes: float,
    values: float,
    policy: bool = False,
    improving: bool = False,
    steps: int = STEPS,
) -> list[str]:
    """Return what is seen in a run of two tasks, without their inputs.

    Args:
        path: parent directory of the run.
        classes: standard deviation of the logits, which know nothing of the labels.
        values: standard deviation of the predicted values; that of the labels is 1.
        policy: whether a policy gradient is another loss.
        improving: whether a reported accuracy rises.
        steps: length of the run.
    """
    generator = np.random.default_rng(0)
    records = []
    for step in range(steps):
        labels, numbers = generator.normal(size=(32, 1)), generator.integers(0, 5, 32)
        logits = classes * generator.normal(size=(32, 5))
        predicted = values * generator.normal(size=(32, 1))
        entropy = functional.cross_entropy(torch.tensor(logits), torch.tensor(numbers)).item()
        scalars = {"losses/kind": entropy, "losses/size": float(((predicted - labels) ** 2).mean())}
        if policy:
            scalars["losses/policy"] = float(generator.normal())
        if improving:
            scalars["metrics/accuracy"] = 0.2 + 0.7 * step / STEPS
        tensors = {"labels/kind": numbers, "predictions/kind": logits}
        tensors |= {"labels/size": labels, "predictions/size": predicted}
        records.append(step_record(step, scalars=scalars, tensors=tensors if step % 5 == 0 else {}))
    losses = {
        "kind": {"type": "CrossEntropyLoss", "settings": {"reduction": "mean"}},
        "size": {"type": "MSELoss", "settings": {"reduction": "mean"}},
    }
    if policy:
        losses["policy"] = {"function": POLICY_GRADIENT}
    run = make_run(path / "run", records, losses=losses, framework="torch", total_steps=steps)
    return [one.seen for one in judge(run, [Underfitting()])]


def test_two_tasks_far_above_guessing_are_poor(tmp_path: Path) -> None:
    (seen,) = found(tmp_path, classes=30.0, values=30.0)
    assert "kind is" in seen
    assert "where guessing gives 1.6" in seen
    assert "size is" in seen


@pytest.mark.parametrize(
    ("policy", "improving"),
    [(True, False), (False, True)],
    ids=["beside a policy", "a metric improves"],
)
def test_others_are_open(*, policy: bool, improving: bool, tmp_path: Path) -> None:
    seen = found(tmp_path, classes=30.0, values=30.0, policy=policy, improving=improving)
    assert seen == []


@pytest.mark.parametrize(("classes", "values"), [(1.0, 30.0), (30.0, 2.0)])
def test_if_a_task_is_near_guessing_the_numbers_are_only_worse_than_their_mean(
    classes: float, values: float, tmp_path: Path
) -> None:
    (seen,) = found(tmp_path, classes=classes, values=values)
    assert seen.startswith("size: R2 -")


def test_a_short_run_is_open(tmp_path: Path) -> None:
    assert found(tmp_path, classes=30.0, values=30.0, steps=140) == []
