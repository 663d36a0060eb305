"""Prunings whose fine-tuning is a command: real flows, rules that stop it, and kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.pruning.pruning_flows import (
    MODULE,
    complete,
    prune,
    records,
    start,
    weights,
    write,
)
from vinedresser import open_run
from vinedresser.cli.views.parents import parent_line

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.thorough,
    pytest.mark.usefixtures("shared_prefect"),
]

SCRIPT = '["python", "-m", "tests.scripts.fine_tuning"{options}]'


def write_command(folder: Path, *arguments: str, options: str = "", **settings: Any) -> None:
    """Write a prune file with a command."""
    write(folder, *arguments, **settings)
    path = folder / "prune.toml"
    text = path.read_text(encoding="utf-8")
    command = SCRIPT.format(options=options)
    path.write_text(text.replace(f'"{MODULE}:train"', command), encoding="utf-8")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store of a pruning of one round."""
    folder = tmp_path_factory.mktemp("prune")
    write_command(folder, "rounds = 1")
    code, output = prune(folder)
    assert code == 0, output
    return folder / "runs" / "small"


@pytest.mark.slow
def test_a_command_tunes_as_a_function_does(
    undisturbed: Path, tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    write(tmp_path, "rounds = 1")
    code, output = prune(tmp_path)
    assert code == 0, output
    assert weights(undisturbed) == weights(tmp_path / "runs" / "small")
    assert records(undisturbed) == records(tmp_path / "runs" / "small")
    run = open_run(undisturbed / "round-1.2")
    assert run.status.state == "finished"
    assert run.steps("train").size == 5
    assert run.info.parameters["lr"] == 0.01
    runs = mlflow_runs(undisturbed.parent)
    tuning = runs["round-1.2"]
    assert tuning["status"] == "FINISHED"
    assert tuning["tags"]["mlflow.parentRunId"] == runs["small"]["id"]
    assert "   2 rounds   " in parent_line(undisturbed)


@pytest.mark.slow
def test_a_script_without_a_hook_is_captured(undisturbed: Path, tmp_path: Path) -> None:
    write_command(tmp_path, "rounds = 1", options=', "--no-hook"')
    code, output = prune(tmp_path)
    assert code == 0, output
    store = tmp_path / "runs" / "small"
    assert open_run(store / "round-1.2").steps("train").size == 5
    assert weights(store) == weights(undisturbed)


@pytest.mark.slow
def test_a_command_that_a_rule_stopped_begins_again_corrected(tmp_path: Path) -> None:
    write_command(
        tmp_path,
        "rounds = 1",
        parameters=', steps = 90, kind = "patient"',
        tables='[rules]\npreset = "none"\n[rules.nonfinite]\nevery = 1\n[remedy]\ntimes = 4',
        lr=1e5,
    )
    code, output = prune(tmp_path)
    assert code == 0, output
    store = tmp_path / "runs" / "small"
    stopped = open_run(store / "round-1").status
    assert (stopped.state, stopped.rule) == ("stopped", "nonfinite")
    assert open_run(store / "round-1.2").status.rule == "nonfinite"
    last = records(store)[1].run
    assert last.startswith("round-1-remedy-")
    assert open_run(store / f"{last}.2").info.parameters["lr"] == 1000.0


@pytest.mark.parametrize(
    ("phase", "until_"),
    [
        pytest.param("train", "killed", marks=pytest.mark.slow),
        pytest.param("train", "flow killed", marks=pytest.mark.slow),
        pytest.param("saved", "killed", marks=pytest.mark.slow),
        pytest.param("saved", "flow killed", marks=pytest.mark.slow),
    ],
)
def test_a_kill_in_the_command_loses_no_round(
    phase: str, until_: str, undisturbed: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    hold = f'HOLD = "{phase}", UNTIL = "{until_}", MARK = "{mark}"'
    write_command(tmp_path, "rounds = 1", environment=hold)
    flow = start(tmp_path)
    complete(tmp_path, flow, mark if until_ == "flow killed" else None)
    store = tmp_path / "runs" / "small"
    assert records(store) == records(undisturbed)
    assert weights(store) == weights(undisturbed)
    runs = {path.name: open_run(path).status for path in store.glob("round-*")}
    assert runs.pop("round-1").state in {"killed", "stopped"}
    assert runs.pop("round-1.2").over
    assert {run.state for run in runs.values()} == {"finished"}
    assert runs.keys() == {"round-0", "round-1-2", "round-1-2.2"}


@pytest.mark.slow
def test_a_script_that_fails_is_tried_again_and_then_reported(tmp_path: Path) -> None:
    write_command(tmp_path, parameters=', kind = "crash"')
    code, output = prune(tmp_path)
    assert code == 1, output
    assert "round-1 crashed: RuntimeError: the data is gone" in output


@pytest.mark.slow
def test_runs_of_a_command_on_an_object_store(tmp_path: Path, s3: str) -> None:
    write_command(tmp_path, "rounds = 1", tables='[rules.nonfinite]\nseverity = "stop"')
    code, output = prune(tmp_path, "--store", s3)
    assert code == 0, output
    tuning = open_run(f"{s3}/small/round-1.2")
    assert tuning.status.state == "finished"
    assert tuning.steps("train").size == 5
    code, output = prune(tmp_path, "--store", s3, "--resume")
    assert code == 0, output
