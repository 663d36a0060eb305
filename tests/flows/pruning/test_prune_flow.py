"""`vinedresser prune` for real: Prefect, MLflow, supervised rounds, and processes killed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.flows.changing_files import invalid_once_read
from tests.flows.pruning.pruning_flows import (
    MODULE,
    complete,
    prune,
    records,
    start,
    weights,
    write,
)
from tests.pruning.rounds import functions
from tests.waiting import until
from vinedresser import open_run
from vinedresser.pruning import load
from vinedresser.pruning.folders import round_folder

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.slow,
    pytest.mark.usefixtures("shared_prefect"),
]

Runs = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of a pruning of two rounds, and what it printed."""
    folder = tmp_path_factory.mktemp("prune")
    write(folder, 'rounds = 2\nregister = "small-net"')
    code, output = prune(folder)
    assert code == 0, output
    return folder, output


def test_each_round_is_a_run_beside_the_last(
    undisturbed: tuple[Path, str], mlflow_runs: Runs
) -> None:
    folder, output = undisturbed
    store = folder / "runs" / "small"
    assert re.search("^result +round 2: ", output, re.MULTILINE)
    assert re.search("^ended +rounds: ", output, re.MULTILINE)
    assert [record.figure for record in records(store)] == [1.0, 20 / 24, 16 / 24]
    runs = mlflow_runs(folder / "runs")
    parent = runs.pop("small")
    assert parent["status"] == "FINISHED"
    assert parent["tags"]["pruning.result"] == "round-2"
    assert re.match(r"round 2 of 2: figure [\d.]+ of 1, \d+ % .* \d+ % ", parent["tags"]["verdict"])
    assert {*parent["files"]} == {"model", "pruning.html", "result.json", "rounds"}
    assert parent["params"]["prune.criterion"] == "taylor_weight"
    assert runs.keys() == {"round-0", "round-1", "round-2"}
    for number, one in enumerate(records(store)):
        child = runs[f"round-{number}"]
        assert child["status"] == "FINISHED"
        assert child["tags"]["mlflow.parentRunId"] == parent["id"]
        assert child["metrics"]["eval/pruning/figure"] == one.figure
        assert child["metrics"]["eval/pruning/parameters"] == one.parameters
        assert {"report.html"} <= {*child["files"]}
    model = load(store, functions.network)
    assert sum(functions.filters(model)) == 16
    assert open_run(store / "round-1").steps("train").size == 5
    listed = subprocess.run(
        [sys.executable, "-m", "vinedresser", "status", "runs"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pruning small   finished   3 rounds   vinedresser status runs/small" in listed


def test_the_result_is_a_registered_model(undisturbed: tuple[Path, str], tmp_path: Path) -> None:
    store = undisturbed[0] / "runs"
    database = shutil.copy(store / "mlflow.db", tmp_path / "copy.db")
    script = """
import sys
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
client = MlflowClient(f"sqlite:///{sys.argv[1]}")
one = client.get_model_version_by_alias("small-net", "pruned")
print(one.version, one.run_id, download_artifacts(one.source, dst_path=sys.argv[2]))
"""
    there = str(tmp_path / "served")
    Path(there).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, str(database), there],
        check=True,
        capture_output=True,
        text=True,
    )
    version, _, folder = done.stdout.split()
    assert version == "1"
    served, tuned = load(folder, functions.network), load(store / "small", functions.network)
    assert all(map(torch.equal, served.parameters(), tuned.parameters()))


def test_a_registered_model_is_pruned_further(
    undisturbed: tuple[Path, str], tmp_path: Path
) -> None:
    uri = f'[tracking]\nuri = "sqlite:///{undisturbed[0]}/runs/mlflow.db"'
    write(tmp_path, "rounds = 1", tables=uri)
    path = tmp_path / "prune.toml"
    text = path.read_text(encoding="utf-8")
    given = text.replace(f'weights = "{MODULE}:pretrain"', 'weights = "models:/small-net@pruned"')
    path.write_text(given.replace('name = "small"', 'name = "further"'), encoding="utf-8")
    code, output = prune(tmp_path)
    assert code == 0, output
    assert [record.figure for record in records(tmp_path / "runs" / "further")] == [
        16 / 24,
        12 / 24,
    ]
    served = load(tmp_path / "runs" / "further", functions.network)
    assert sum(functions.filters(served)) == 12
    path.write_text(given.replace("small-net@pruned", "other-net@pruned"), encoding="utf-8")
    code, output = prune(tmp_path)
    assert code == 2
    assert "prune.toml: prune.weights: models:/other-net@pruned: " in output
    assert "Traceback" not in output


def test_a_finished_pruning_is_not_begun_again(
    undisturbed: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _ = undisturbed
    shutil.copytree(folder / "runs", tmp_path / "runs")
    write(tmp_path)
    code, output = prune(tmp_path)
    assert code == 2
    assert "already holds this pruning; resume it with --resume" in output
    write(tmp_path, "rounds = 2\nfloor = 2")
    code, output = prune(tmp_path, "--resume")
    assert code == 2
    assert "prune.floor: was 1, is 2" in output
    assert weights(folder / "runs" / "small") == weights(tmp_path / "runs" / "small")


def test_more_rounds_and_branches(undisturbed: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = undisturbed
    shutil.copytree(folder, tmp_path / "copy")
    there = tmp_path / "copy"
    # The copy has a database of its own; a target ends it.
    write(
        there,
        'rounds = 5\nparameters = "30%"',
        tables=f'[tracking]\nuri = "sqlite:///{there}/m.db"',
    )
    code, output = prune(there, "--from", "round-1")
    assert code == 0, output
    assert "ended            target_reached: round 3: " in output
    branch, origin = there / "runs" / "small-from-1", there / "runs" / "small"
    shared = [f"models/round-{number}/tuned/weights.safetensors" for number in (0, 1)]
    assert all(weights(branch)[one] == weights(origin)[one] for one in shared)
    assert [path.name for path in sorted(branch.glob("round-*"))] == ["round-2", "round-3"]
    assert len(records(branch)) == 4
    assert weights(origin) == weights(folder / "runs" / "small")
    code, output = prune(there, "--from", "round-9")
    assert code == 2
    assert "no such round of small" in output


def test_a_fine_tuning_that_goes_wrong(tmp_path: Path, mlflow_runs: Runs) -> None:
    write(
        tmp_path,
        parameters=', steps = 90, kind = "nan"',
        tables='[rules.nonfinite]\nseverity = "stop"',
    )
    code, output = prune(tmp_path)
    assert code == 1, output
    assert "result           round 0: no round was completed" in output
    assert "round-1 was stopped: " in output
    runs = mlflow_runs(tmp_path / "runs")
    assert runs["small"]["status"] == "FAILED"
    assert runs["round-1"]["tags"]["stop.rule"] == "nonfinite"


def test_a_fault_in_the_last_step_refuses_the_round(tmp_path: Path) -> None:
    write(
        tmp_path,
        parameters=', kind = "last"',
        tables='[rules.nonfinite]\nseverity = "stop"\nevery = 1',
    )
    code, output = prune(tmp_path)
    assert code == 1, output
    # Whether the rule is in time to stop the evaluation depends on the machine.
    assert "round-1 was stopped: " in output or "round-1 is refused: nonfinite found" in output
    assert "result           round 0: no round was completed" in output
    assert not (round_folder(tmp_path / "runs" / "small", 1) / "round.json").exists()


def test_a_fine_tuning_that_a_rule_stopped_begins_again_corrected(
    tmp_path: Path, mlflow_runs: Runs
) -> None:
    tables = '[rules]\npreset = "none"\n[rules.nonfinite]\nevery = 1\n[remedy]\ntimes = 4'
    write(
        tmp_path,
        "rounds = 1",
        parameters=', steps = 90, kind = "patient"',
        tables=tables,
        lr=1e5,
    )
    code, output = prune(tmp_path)
    assert code == 0, output
    store = tmp_path / "runs" / "small"
    last = records(store)[1].run
    assert last.startswith("round-1-remedy-")
    assert open_run(store / last).info.parameters["lr"] == 1000.0
    assert open_run(store / last).info.parameters["steps"] == 90
    runs = mlflow_runs(tmp_path / "runs")
    assert runs["round-1"]["tags"]["stop.rule"] == "nonfinite"
    assert runs[last]["tags"]["mlflow.parentRunId"] == runs["round-1"]["id"]


def test_a_crash_is_tried_again_and_then_reported(tmp_path: Path) -> None:
    write(tmp_path, parameters=', kind = "crash"')
    code, output = prune(tmp_path)
    assert code == 1, output
    assert "round-1 crashed: RuntimeError: the data is gone" in output
    store = tmp_path / "runs" / "small"
    assert [path.name for path in sorted(store.glob("round-*"))] == [
        "round-0",
        "round-1",
        "round-1-2",
    ]


@pytest.mark.slow
def test_a_killed_judge_is_replaced_and_the_round_goes_on(
    undisturbed: tuple[Path, str], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    write(tmp_path, environment=f'HOLD = "train", UNTIL = "released", MARK = "{mark}"')
    flow = start(tmp_path)
    until(mark.exists, "the phase", seconds=200)
    killed = 0
    for process in psutil.Process(flow.pid).children(recursive=True):
        if any("vinedresser.rules." in word for word in process.cmdline()):
            process.kill()
            killed += 1
    mark.with_suffix(".released").touch()
    output, _ = flow.communicate()
    assert flow.returncode == 0, output
    assert killed
    store, reference = tmp_path / "runs" / "small", undisturbed[0] / "runs" / "small"
    assert records(store) == records(reference)
    assert weights(store) == weights(reference)


def test_runs_on_an_object_store_and_models_here(tmp_path: Path, s3: str) -> None:
    write(tmp_path, "rounds = 1")
    code, output = prune(tmp_path, "--store", s3)
    assert code == 0, output
    assert open_run(f"{s3}/small/round-1").status.state == "finished"
    folder = re.search(r'load it: vinedresser\.pruning\.load\("(.*)", build\)', output)
    assert folder is not None
    served = load(tmp_path / folder[1], functions.network)
    assert sum(functions.filters(served)) == 20
    write(tmp_path, "rounds = 2")
    code, output = prune(tmp_path, "--store", s3, "--resume")
    assert code == 0, output
    served = load(tmp_path / folder[1], functions.network)
    assert sum(functions.filters(served)) == 16


def test_a_mistake_that_is_mended_needs_no_other_name(tmp_path: Path) -> None:
    write(tmp_path, "rounds = 1")
    path = tmp_path / "prune.toml"
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace(":evaluate", ":evalute"), encoding="utf-8")
    code, output = prune(tmp_path)
    assert code == 1
    assert output.count("has no function evalute; did you mean evaluate?") == 1
    path.write_text(right, encoding="utf-8")
    code, output = prune(tmp_path, "--resume")
    assert code == 0, output
    assert len(records(tmp_path / "runs" / "small")) == 2


def test_the_limits_end_it_and_the_target_is_not_reached(tmp_path: Path, mlflow_runs: Runs) -> None:
    write(tmp_path, 'max_drop = 0.2\nmacs = "10%"')
    with invalid_once_read(tmp_path / "prune.toml"):
        code, output = prune(tmp_path)
    assert code == 5, output
    broken = "0.666667, 1 unpruned; max_drop is 0.2"
    assert f"ended            accuracy_drop: round 2: {broken}" in output
    rounds = records(tmp_path / "runs" / "small")
    _, first, second = (f"{100 * one.macs / rounds[0].macs:.3g} % of its macs" for one in rounds)
    missed = f"10 % of its macs, within the limits: round 2 ({second}): {broken}"
    result = (
        "the smallest model of the 1 within the limits: 0.833333 against 1 unpruned, "
        f"{first}; not reached: {missed}"
    )
    assert f"result           round 1: {result}" in output
    page = (tmp_path / "runs" / "small" / "pruning.html").read_text(encoding="utf-8")
    assert '<body class="doubtful">' in page
    assert result in page
    tags = mlflow_runs(tmp_path / "runs")["small"]["tags"]
    assert tags["pruning.result.missed"] == missed
    assert tags["pruning.result.why"] == result
    assert tags["verdict"].endswith(f"% of the MACs; not reached: {missed}")


@pytest.mark.parametrize("until_", ["killed", "flow killed"])
@pytest.mark.parametrize(
    "phase",
    [pytest.param(one, marks=pytest.mark.slow) for one in ("weights", "losses", "before", "after")]
    + ["train"],
)
def test_a_kill_loses_no_round_and_repeats_none(
    phase: str, until_: str, undisturbed: tuple[Path, str], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    write(tmp_path, environment=f'HOLD = "{phase}", UNTIL = "{until_}", MARK = "{mark}"')
    flow = start(tmp_path)
    complete(tmp_path, flow, mark if until_ == "flow killed" else None)
    assert mark.exists()
    store, reference = tmp_path / "runs" / "small", undisturbed[0] / "runs" / "small"
    assert records(store) == records(reference)
    assert weights(store) == weights(reference)
    broken = "round-0" if phase == "weights" else "round-1"
    runs = {path.name: open_run(path).status.state for path in store.glob("round-*")}
    # Without its flow, a training is asked to stop before it is killed.
    assert runs.pop(broken) in {"killed", "stopped"}
    assert runs == dict.fromkeys(runs, "finished")
    assert f"{broken}-2" in runs
    assert len(runs) == 3
