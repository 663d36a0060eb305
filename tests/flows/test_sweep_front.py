"""A sweep with several objectives, for real: its Pareto front in all places."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.test_sweep_flow import sweep
from vinedresser.store.reading.reader import open_run

MakeStore = Callable[[Path], Path]

TRAINER = """
import argparse
from vinedresser.capture import Hook

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int)
parser.add_argument("--waste", type=float)
given = parser.parse_args()
with Hook() as hook:
    for epoch in range(3):
        for _ in range(4):
            hook.step(loss=1 / (1 + epoch))
        with hook.mode("eval"):
            hook.metric("accuracy", 1 - 1 / given.width - given.waste / 10)
            hook.metric("latency", given.width * (1 + given.waste))
"""

SWEEP = """
[sweep]
objectives = [
    { metric = "accuracy", direction = "maximize" },
    { metric = "latency", direction = "minimize" },
]
sampler = { name = "nsgaii", population = 4 }
pruner = "none"
trials = TRIALS

[space]
width = { int = [2, 6] }
waste = [0.0, 0.5]

[run]
name = "search"
command = ["python", "train.py"]
max_concurrent = 2

[rules]
preset = "none"
"""

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


@pytest.mark.thorough
def test_the_front_is_shown_in_the_terminal_on_the_page_and_in_mlflow(
    tmp_path: Path, mlflow_store: MakeStore, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    mlflow_store(tmp_path / "runs")
    (tmp_path / "train.py").write_text(TRAINER, encoding="utf-8")
    for trials in (5, 10):
        text = SWEEP.replace("TRIALS", str(trials))
        (tmp_path / "sweep.toml").write_text(text, encoding="utf-8")
        code, output = sweep(tmp_path, *(["--resume"] if trials == 10 else []))
        assert code == 0, output
        runs = mlflow_runs(tmp_path / "runs")
        store = tmp_path / "runs" / "search"
        names = [path.name for path in store.glob("trial-????")]
        assert len(names) == trials
        parameters = {name: open_run(store / name).info.parameters for name in names}
        # What wastes nothing is not dominated; what does may be, once its twin was tried.
        front = set(runs["search"]["tags"]["sweep.pareto"].split(", "))
        assert front == {name for name in names if runs[name]["tags"].get("pareto") == "true"}
        assert output.count("Pareto front     trial-") == len(front)
        assert {name for name in names if parameters[name]["waste"] == 0.0} <= front
    # The space has ten configurations.
    assert front == {name for name in names if parameters[name]["waste"] == 0.0}
    assert "5 on the Pareto front" in runs["search"]["tags"]["verdict"]
    page = (store / "sweep.html").read_text(encoding="utf-8")
    assert page.count('class="point front"') == 5
    assert page.count('class="point dominated"') == 5
    assert page.count('<tr class="front">') == 5
    assert "<th>latency</th>" in page
    record = json.loads((store / "sweep.json").read_text(encoding="utf-8"))
    assert [goal["metric"] for goal in record["objectives"]] == ["accuracy", "latency"]
