"""Signs that tell one cause of a loss from another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vinedresser.rules.judge import judge
from vinedresser.rules.losses.initial_loss import InitialLoss
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.testing.runs import make_run, step_record


@pytest.mark.parametrize(("factor", "penalty", "expected"), [(40, 0.0, [40.0]), (1, 40.0, [])])
def test_a_multiple_of_a_function(
    factor: float, penalty: float, expected: list[float], tmp_path: Path
) -> None:
    """The hook knows the function, and the loss is a multiple of it, or more than it."""
    generator = torch.Generator().manual_seed(0)
    records = []
    for step in range(0, 30, 5):
        labels = torch.randn(32, 1, generator=generator)
        outputs = torch.randn(32, 1, generator=generator)
        value = factor * float(nn.functional.mse_loss(outputs, labels)) + penalty
        if step >= 15:
            value *= 1e3
        tensors = {"labels/loss": labels.numpy(), "predictions/loss": outputs.numpy()}
        records.append(step_record(step, tensors=tensors, scalars={"losses/loss": value}))
    run = make_run(tmp_path / "run", records, losses={"loss": {"function": "mse_loss"}})
    factors = [one.evidence["factor"] for one in judge(run, [InitialLoss()])]
    assert factors == [pytest.approx(one, rel=1e-3) for one in expected]


@pytest.mark.parametrize(("size", "found"), [(1e-12, []), (1.0, ["out_of_reach"])])
def test_outputs_that_have_collapsed_need_no_activation(
    size: float, found: list[str], tmp_path: Path
) -> None:
    """Outputs of 0 and of 1 are those of a range; weights that have decayed leave those near 0."""
    generator = np.random.default_rng(0)
    records = []
    for step in range(0, 600, 5):
        inputs = generator.normal(size=(32, 4))
        tensors = {
            "model_inputs/x": inputs,
            "labels/MSELoss": 5 * inputs.sum(1, keepdims=True),
            "predictions/MSELoss": size * (generator.random((32, 1)) < 0.5),
        }
        records.append(step_record(step, scalars={"losses/MSELoss": 100.0}, tensors=tensors))
    run = make_run(tmp_path / "run", records, total_steps=600)
    kinds = [one.evidence["kind"] for one in judge(run, [LossOutputMismatch()])]
    assert kinds == found
