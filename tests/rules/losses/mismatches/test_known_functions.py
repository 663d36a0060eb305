"""What a loss function compared, if the value of the loss is of a formula that nobody knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.testing.runs import make_run, step_record


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
