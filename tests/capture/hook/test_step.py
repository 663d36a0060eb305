"""Loops without a watched model report their steps."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vinedresser.capture import Hook, SaveConfig, TrainingStopped, open_run
from vinedresser.errors import ConfigError
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table

EVERYTHING = {
    kind: SaveConfig(every=1) for kind in ("inputs", "labels", "predictions", "losses", "metrics")
}


def regression(hook: Hook, steps: int, rate: float = 0.1) -> list[float]:
    """Fit a line by gradient descent in plain numpy; return the losses."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((32, 3))
    y = x @ np.array([1.0, -2.0, 0.5])
    weights = np.zeros(3)
    losses = []
    for _ in range(steps):
        predicted = x @ weights
        loss = float(np.mean((predicted - y) ** 2))
        weights -= rate * 2 / len(x) * x.T @ (predicted - y)
        losses.append(loss)
        hook.step(
            inputs=x, labels=y, outputs=predicted, loss=loss, metrics={"norm": weights @ weights}
        )
    return losses


def test_a_step_contains_the_reported_values(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        losses = regression(hook, 5)
    run = open_run(tmp_path / "run")
    assert run.scalars("losses")["losses/loss"].values.tolist() == losses
    assert run.scalars("losses")["losses/loss"].steps.tolist() == [0, 1, 2, 3, 4]
    assert len(run.scalars("metrics")["metrics/norm"]) == 5
    assert run.tensor("inputs/batch").value(4).shape == (32, 3)
    predicted, labels = (run.tensor(f"{kind}/batch").value(3) for kind in ("predictions", "labels"))
    assert np.mean((predicted - labels) ** 2) == losses[3]
    assert run.status.state == "finished"
    assert set(run.info.capture) == {*EVERYTHING, "saved"}


def test_tensors_are_saved_only_when_they_are_due(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections={"inputs": SaveConfig(every=4)}) as hook:
        regression(hook, 9)
    run = open_run(tmp_path / "run")
    assert run.tensor("inputs/batch").steps().tolist() == [0, 4, 8]
    assert run.tensor_names() == ["inputs/batch"]


def test_several_values_have_names_and_torch_tensors_are_accepted(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        image, text = torch.ones(2, 3, dtype=torch.bfloat16), np.arange(4)
        hook.step(
            inputs={"image": image, "text": text},
            loss={"total": torch.tensor(3.0), "penalty": np.float32(0.5)},
        )
    run = open_run(tmp_path / "run")
    assert run.tensor("inputs/image").dtype.name == "bfloat16"
    assert run.tensor("inputs/text").value(0).tolist() == [0, 1, 2, 3]
    assert {name: column.values[0] for name, column in run.scalars("losses").items()} == {
        "losses/total": 3.0,
        "losses/penalty": 0.5,
    }


def test_an_evaluation_is_reported_in_batches(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.step(loss=1.0)
        with hook.mode("eval"):
            hook.step(loss=4.0, labels=np.array([1, 2]))
            hook.step(loss=2.0, labels=np.array([3, 4]))
        hook.step(loss=0.5)
    run = open_run(tmp_path / "run")
    evaluated = run.scalars("losses", mode="eval")["losses/loss"]
    assert (evaluated.steps.tolist(), evaluated.values.tolist()) == ([1], [3.0])
    assert run.tensor("labels/batch").value(1, "eval").tolist() == [1, 2]
    trained = run.scalars("losses", mode="train")["losses/loss"]
    assert (trained.steps.tolist(), trained.values.tolist()) == ([0, 1], [1.0, 0.5])


def test_a_rule_judges_reported_steps(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook, np.errstate(all="ignore"):
        regression(hook, 400, rate=5.0)
    found = judge(open_run(tmp_path / "run"), rules_from_table({"nonfinite": {}}))
    assert {(finding.rule, finding.tensor) for finding in found} >= {("nonfinite", "losses/loss")}


def test_a_requested_stop_happens_between_two_steps(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        hook.step(loss=1.0)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(TrainingStopped):
            hook.step(loss=2.0)
    assert len(open_run(tmp_path / "run").scalars("losses")["losses/loss"]) == 2


def test_invalid_calls_are_rejected(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        with pytest.raises(ConfigError, match=r"metrics = 0\.5: must be a mapping"):
            hook.step(metrics=0.5)  # type: ignore[arg-type]
        hook.watch(nn.Linear(1, 1))
        with pytest.raises(ConfigError, match="the watched model defines the steps"):
            hook.step(loss=1.0)
