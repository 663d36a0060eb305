"""A sweep ends at its target, and stops trials that are over their limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.test_sweep_flow import sweep, write

MakeStore = Callable[[Path], Path]

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


@pytest.mark.slow
def test_a_trial_over_its_limit_is_stopped_and_a_target_ends_the_sweep(
    tmp_path: Path, mlflow_store: MakeStore, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    mlflow_store(tmp_path / "runs")
    write(
        tmp_path,
        "pause = [0.0, 300.0]\nx = [0.5, 0.9, 0.95]",
        more="points = [{ x = 0.5, pause = 300.0 }]\ntarget = 0.9",
        parameters="seed = 1",
    )
    path = tmp_path / "sweep.toml"
    text = path.read_text(encoding="utf-8")
    limits = 'max_concurrent = 1\ntime_limit = "20 s"\nmemory_limit = "8 GB"'
    path.write_text(text.replace("max_concurrent = 2", limits), encoding="utf-8")
    code, output = sweep(tmp_path)
    assert code == 0, output
    assert "trials           1 stopped, 2 finished" in output
    assert "over its time limit of 20 s (run.time_limit)" in output
    assert "ended            trial-0002 has reached the target of 0.9: accuracy 0.9" in output
    runs = mlflow_runs(tmp_path / "runs")
    assert runs["search"]["tags"]["sweep.over"].startswith("trial-0002 has reached the target")
    assert runs["trial-0000"]["tags"]["stop.by"] == "limit"
    assert runs["trial-0000"]["status"] == "KILLED"
    page = (tmp_path / "runs" / "search" / "sweep.html").read_text(encoding="utf-8")
    assert "<b>limit</b>: 1 of 3 trials" in page
    # A resumed sweep may have another target.
    path.write_text(
        path.read_text(encoding="utf-8").replace("target = 0.9", "target = 0.95"), encoding="utf-8"
    )
    code, output = sweep(tmp_path, "--resume")
    assert code == 0, output
    assert "trials           1 stopped, 3 finished" in output


@pytest.mark.slow
def test_a_misspelt_metric_ends_the_sweep_with_its_first_trial(
    tmp_path: Path, mlflow_store: MakeStore
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, "x = [0.5, 0.6, 0.7, 0.8]")
    path = tmp_path / "sweep.toml"
    text = path.read_text(encoding="utf-8").replace("max_concurrent = 2", "max_concurrent = 1")
    path.write_text(text.replace('metric = "accuracy"', 'metric = "acuracy"'), encoding="utf-8")
    code, output = sweep(tmp_path)
    assert code != 0
    assert "the first trial failed: no value of acuracy in mode eval" in output
    assert "accuracy (eval)" in output
    # The next one begins while the first is recorded.
    assert "trial-0002" not in output
