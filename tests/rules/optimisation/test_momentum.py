"""A momentum that adds up hundreds of gradients is the cause of a poor outcome, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser.rules.judge import judge
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.testing.runs import make_run, step_record

SGD: dict[str, Any] = {"lr": 0.01, "momentum": 0.9995, "dampening": 0}


def causes(path: Path, kind: str, settings: dict[str, Any], *, good: bool) -> list[str]:
    """Return the causes found in a run whose labels a linear model predicts, and its own might."""
    rng, records = np.random.default_rng(0), []
    for step in range(0, 600, 5):
        inputs = rng.normal(size=(32, 4)).astype(np.float32)
        labels = (inputs.sum(1) > 0).astype(np.int64)
        scores = rng.normal(size=(32, 2)) + 5 * good * np.eye(2)[labels]
        tensors = {
            "model_inputs/M": inputs,
            "labels/CrossEntropyLoss": labels,
            "predictions/CrossEntropyLoss": scores,
        }
        statistics = {"weights/0.weight": {"l2": 1.0}, "updates/0.weight": {"l2": 1e-3}}
        scalars = {"losses/CrossEntropyLoss": 0.1 if good else 0.8}
        records.append(step_record(step, scalars=scalars, tensors=tensors, reductions=statistics))
    optimizers = [{"type": kind, "settings": settings}]
    run = make_run(path, records, total_steps=600, optimizers=optimizers)
    return [one.cause for one in judge(run, [LearningRateTooHigh()])]


def test_two_thousand_gradients_in_a_poor_training(tmp_path: Path) -> None:
    (cause,) = causes(tmp_path / "run", "SGD", SGD, good=False)
    assert "about 2000 gradients" in cause
    assert "200 times the learning rate" in cause


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "settings", "good"),
    [
        ("SGD", SGD, True),
        ("SGD", SGD | {"momentum": 0.99}, False),
        ("SGD", SGD | {"dampening": 0.9995}, False),
        ("SGD", SGD | {"momentum": None}, False),
        # The decay of an average that another optimizer keeps.
        ("Averaged", SGD, False),
    ],
)
def test_others_are_no_cause(
    kind: str, settings: dict[str, Any], good: bool, tmp_path: Path
) -> None:
    assert causes(tmp_path / "run", kind, settings, good=good) == []
