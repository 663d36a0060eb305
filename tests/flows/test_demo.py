"""The demo: four trainings with a mistake are stopped early, the healthy one finishes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT
from vinedresser.store.reading.reader import open_run

DEMO = ROOT / "examples" / "digits" / "demo.toml"
RULES = {
    "healthy": "",
    "high-lr": "learning_rate_too_high",
    "sigmoid": "vanishing_gradient",
    "overfit": "overfitting",
    "nan": "nonfinite",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_faulty_trainings_are_stopped_early(
    tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> None:
    store = mlflow_store(tmp_path / "runs")
    # As many threads as a user's processes have.
    environment = {name: os.environ[name] for name in os.environ if name != "OMP_NUM_THREADS"}
    demo = subprocess.run(
        [sys.executable, "-m", "vinedresser", "train", str(DEMO), "--store", str(store)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    runs = {name: open_run(store / f"digits-{name}") for name in RULES}
    assert {name: run.status.rule or "" for name, run in runs.items()} == RULES
    states = {name: run.status.state for name, run in runs.items()}
    assert states == dict.fromkeys(RULES, "stopped") | {"healthy": "finished"}
    saved = {name: run.status.steps_saved(run.info.total_steps) for name, run in runs.items()}
    assert saved.pop("healthy") is None
    assert all(saved.values()), saved
