"""`vinedresser enqueue`: configurations added to a sweep while it runs, and afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.flows.test_sweep_flow import configurations, start, sweep, write
from tests.waiting import until

MakeStore = Callable[[Path], Path]

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


def enqueue(folder: Path, *arguments: str) -> tuple[int, str]:
    """Add a configuration; return the exit code and what was printed."""
    done = vinedresser("enqueue", *arguments, cwd=folder)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.slow
def test_a_configuration_is_tried_while_the_sweep_runs_and_when_it_is_resumed(
    tmp_path: Path, mlflow_store: MakeStore
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, "x = { float = [0.0, 1.0] }\nkind = ['good', 'odd']", parameters="pause = 2.0")
    path = tmp_path / "sweep.toml"
    text = path.read_text(encoding="utf-8").replace("max_concurrent = 2", "max_concurrent = 1")
    path.write_text(text.replace('"grid"', '"random"\ntrials = 1'), encoding="utf-8")
    store = tmp_path / "runs" / "search"
    flow = start(tmp_path)
    # The only trial has begun.
    until((store / "trial-0000" / "run.json").exists)
    code, said = enqueue(tmp_path, "runs/search", "x=0.75", "kind=odd")
    assert code == 0, said
    assert said == "x 0.75, kind odd: number 1 in the queue, tried as soon as there is room"
    for wrong, reason in (
        (("x=2",), "enqueue.x: must be a number from 0 to 1, not 2"),
        (("kind=god",), "enqueue.kind: must be one of 'good', 'odd', not 'god'"),
        (("y=1",), "enqueue.y: not in the space"),
        (("x",), "'x': must be NAME=VALUE"),
    ):
        code, said = enqueue(tmp_path, "runs/search", *wrong)
        assert code == 2, said
        assert reason in said
    output, _ = flow.communicate()
    assert flow.returncode == 0, output
    assert "trials           2 finished" in output
    assert [one["x"] for one in configurations(store)][1:] == [0.75]
    code, said = enqueue(tmp_path, "runs/search", "x=0.75", "kind=odd")
    assert code == 2
    assert "trial-0001 has this configuration already" in said
    # The sampler proposes the rest.
    code, said = enqueue(tmp_path, "runs/search", "x=0.5")
    assert (code, said) == (
        0,
        "x 0.5: number 2 in the queue; the sweep is over, --resume tries it",
    )
    code, output = sweep(tmp_path, "--resume")
    assert code == 0, output
    assert [one["x"] for one in configurations(store)][1:] == [0.75, 0.5]
    code, said = enqueue(tmp_path, "runs", "x=0.5")
    assert code == 2
    assert re.search("not the folder of a sweep, such as runs/NAME", said)


@pytest.mark.slow
def test_a_sweep_starts_from_another_one_within_constraints(
    tmp_path: Path, mlflow_store: MakeStore
) -> None:
    mlflow_store(tmp_path / "runs")
    limit = 'constraints = [{ metric = "accuracy", max = 0.8 }]'
    write(tmp_path, "x = [0.1, 0.5, 0.9]", more=limit)
    code, output = sweep(tmp_path)
    assert code == 0, output
    assert "best             trial-0001: accuracy 0.5 with x 0.5" in output
    assert "feasible         2 of 3 finished trials (accuracy <= 0.8)" in output
    assert "infeasible: breaks accuracy <= 0.8 by 0.1" in output
    write(tmp_path, "x = { float = [0.0, 0.6] }", more=f'{limit}\nwarm_start = "runs/search"')
    path = tmp_path / "sweep.toml"
    text = path.read_text(encoding="utf-8").replace('"search"\n', '"second"\n')
    path.write_text(text.replace('"grid"', '"tpe"\ntrials = 2'), encoding="utf-8")
    code, output = sweep(tmp_path)
    assert code == 0, output
    assert "starts from 2 of 3 finished trials of search" in output
    assert "trials           2 finished" in output
    assert sorted(one.name for one in (tmp_path / "runs" / "second").glob("trial-*")) == [
        "trial-0002",
        "trial-0003",
    ]
