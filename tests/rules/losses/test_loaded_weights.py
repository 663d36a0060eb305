"""A training that continues with loaded weights may be as good as it can become."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record

RULES = [LearningRateTooHigh(), LossNotDecreasing(), Underfitting()]


def run(path: Path, level: float, *, loaded: bool, gradient: float = 1.0) -> Run:
    """Return a run whose loss is 100 at its start, and then at a level."""
    noise = np.random.default_rng(0).normal(size=600)
    losses = np.where(np.arange(600) < 20, 100.0, level) * (1 + 0.05 * noise)
    records = [
        step_record(
            step,
            scalars={"losses/loss": loss},
            reductions={f"gradients/{name}": {"l2": gradient} for name in "ab"},
        )
        for step, loss in enumerate(losses.tolist())
    ]
    return make_run(path, records, loaded=loaded)


def faults(found: Run) -> set[str]:
    return {one.rule for one in judge(found, RULES) if one.fault}


@pytest.mark.parametrize(
    ("level", "gradient", "expected"),
    [
        (100.0, 1.0, set()),
        # A loss that is detached from its model.
        (100.0, 0.0, {"loss_not_decreasing"}),
        (1e4, 1.0, {"learning_rate_too_high", "loss_not_decreasing"}),
    ],
)
def test_a_loss_that_stands_is_no_fault_of_loaded_weights(
    level: float, gradient: float, expected: set[str], tmp_path: Path
) -> None:
    assert faults(run(tmp_path / "run", level, loaded=True, gradient=gradient)) == expected


def test_a_loss_that_stands_is_a_fault_of_new_weights(tmp_path: Path) -> None:
    assert faults(run(tmp_path / "run", 100.0, loaded=False)) == {"loss_not_decreasing"}
