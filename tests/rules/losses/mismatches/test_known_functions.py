"""What a loss function compared, if the value of the loss is of a formula that nobody knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vinedresser.rules.judge import judge
from vinedresser.rules.losses.constant_predictions import ConstantPredictions
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record

STEPS = 400


def of_values(path: Path, *, spread: float, labels: float = 1.0, optimizers: int = 1) -> Run:
    """Make a run that predicts values, with a loss of several terms that falls a little.

    Args:
        path: directory of the run.
        spread: standard deviation of the predictions.
        labels: standard deviation of the labels.
        optimizers: number of optimizers, each with a loss and a model.
    """
    generator = np.random.default_rng(0)
    records = []
    for step in range(STEPS):
        tensors = {
            "labels/mine": 5.0 + labels * generator.normal(size=(32, 3)),
            "predictions/mine": 5.0 + spread * generator.normal(size=(32, 3)),
        }
        scalars = {f"losses/{name}": 4.0 - step / 400 for name in ("mine", "other")[:optimizers]}
        records.append(step_record(step, scalars=scalars, tensors=tensors if step % 5 == 0 else {}))
    adam = {"type": "Adam", "settings": {"lr": 0.001}, "parameters": 10, "tensors": 1}
    return make_run(path, records, total_steps=STEPS, optimizers=[adam] * optimizers)


def test_values_that_do_not_depend_on_the_inputs_are_a_warning_if_they_last(
    tmp_path: Path,
) -> None:
    (finding,) = judge(of_values(tmp_path / "run", spread=0.005), [ConstantPredictions()])
    assert (finding.fault, finding.severity) == ("constant_predictions", "warning")
    assert (finding.step, finding.since) == (220, 35)
    assert "vary by" in finding.seen


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spread", "labels", "optimizers"),
    [(0.1, 1.0, 1), (0.0, 0.0, 1), (0.005, 1.0, 2)],
    ids=["a little is learned", "nothing to learn", "adversaries"],
)
def test_other_values_are_ignored(
    spread: float, labels: float, optimizers: int, tmp_path: Path
) -> None:
    run = of_values(tmp_path / "run", spread=spread, labels=labels, optimizers=optimizers)
    assert judge(run, [ConstantPredictions()]) == []


@pytest.mark.parametrize("function", ["mse_loss", "smooth_l1_loss", "nll_loss"])
@pytest.mark.parametrize("column", [True, False])
def test_a_function_that_broadcasts_beside_other_terms(
    function: str, *, column: bool, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    records = []
    for step in range(0, 60, 5):
        labels = generator.normal(size=(32, 1) if column else 32)
        tensors = {"labels/loss": labels, "predictions/loss": generator.normal(size=(32, 1))}
        # Two terms, so that the value is not that of one of them.
        records.append(step_record(step, scalars={"losses/loss": 4.0}, tensors=tensors))
    setup = {"loss": {"function": function, "negated": False, "activation": ""}}
    run = make_run(tmp_path / "run", records, losses=setup, framework="torch")
    found = [one.evidence["kind"] for one in judge(run, [LossOutputMismatch()])]
    assert found == (["broadcast"] if not column and function != "nll_loss" else [])
