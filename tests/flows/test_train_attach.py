"""Flow `train` on scripts without a hook, and the further trainings that a script makes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.capture.attach.runs import attached
from tests.cli.command_line import vinedresser
from tests.paths import SCRIPTS
from tests.warm_python import TORCH
from vinedresser import open_run
from vinedresser.objects import LocalStorage
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.records import (
    LaunchRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.tasks.lifecycle.additional_runs import equip_additional
from vinedresser.tasks.lifecycle.prepare import RunMaker, prepare_mlflow

SCRIPT = SCRIPTS / "unhooked_training.py"

EXPERIMENT = f"""
[run]
name = "plain"
command = ["python", "{SCRIPT}"]
max_concurrent = 2

[variants.one]

[variants.nothing]
parameters = {{ nothing = true }}

[variants.folds]
parameters = {{ trainings = 4, nan = 3, pause = 0.01 }}

[capture.weights]
every = 10

[rules]
preset = "none"
[rules.nonfinite]
"""

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


def weights(said: str) -> list[str]:
    """Return what the script says of its weights, which is their every bit."""
    return re.findall("weights .*", said)


@pytest.mark.thorough
def test_unchanged_scripts_are_captured_judged_and_recorded(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
    store = tmp_path / "runs"
    done = vinedresser("train", "experiment.toml", cwd=tmp_path, columns=200, code=0)
    assert done.stdout.count("no training was seen, so nothing was captured") == 1
    assert "plain-nothing: no training was seen" in done.stdout
    names = ["one", "folds", "folds.2", "folds.3"]
    runs = {name: open_run(store / f"plain-{name}") for name in names}
    assert not (store / "plain-folds.4").exists()

    # The first plan, and each fold that is whole, computes what it does by itself.
    plain = TORCH.run([str(SCRIPT)], tmp_path, os.environ)
    for name, count in (("one", 1), ("folds", 2)):
        said = (store / f"plain-{name}" / "log.txt").read_text(encoding="utf-8")
        assert weights(said) == weights(plain.stdout) * count
    for name in ("one", "folds", "folds.2"):
        assert runs[name].steps("train").tolist() == list(range(60))
        assert runs[name].tensor("weights/weight").steps().tolist() == list(range(0, 60, 10))
        assert runs[name].findings() == []

    states = {name: (run.status.state, run.status.rule) for name, run in runs.items()}
    assert states == {
        "one": ("finished", ""),
        "folds": ("stopped", "nonfinite"),
        "folds.2": ("finished", ""),
        "folds.3": ("stopped", "nonfinite"),
    }
    assert runs["folds"].status.reason.startswith("plain-folds.3: MSELoss is nan")
    again = judge(runs["folds.3"], rules_from_table({"nonfinite": {}}))
    assert runs["folds.3"].findings() == again
    assert again[0].step == 20

    recorded = mlflow_runs(store)
    assert {name: entry["status"] for name, entry in recorded.items()} == {
        "plain-one": "FINISHED",
        "plain-nothing": "FINISHED",
        "plain-folds": "KILLED",
        "plain-folds.2": "FINISHED",
        "plain-folds.3": "KILLED",
    }
    for name in ("plain-one", "plain-folds", "plain-folds.2"):
        assert recorded[name]["steps"] == list(range(60))
        assert "report.html" in recorded[name]["files"]
    assert recorded["plain-folds.3"]["tags"]["stop.rule"] == "nonfinite"
    assert recorded["plain-folds.2"]["params"] == recorded["plain-folds"]["params"]


def environment_of_first_run(path: Path, store: Path, setting: str) -> dict[str, str]:
    """Make the first run of an experiment with a setting; return its environment."""
    text = EXPERIMENT.replace("max_concurrent", f"{setting}\nmax_concurrent")
    path.write_text(text, encoding="utf-8")
    experiment = load_experiment(path, store=store)
    tracking = prepare_mlflow(experiment.store, experiment.tracking_uri, "e")
    maker = RunMaker(experiment, {}, tracking, flow="")
    launch = read_record(LocalStorage(maker.make(experiment.specs[0]).directory), LaunchRecord)
    assert launch is not None
    return dict(launch.environment)


@pytest.mark.thorough
def test_attaching_adds_to_the_environment_unless_it_is_turned_off(
    tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> None:
    path, store = tmp_path / "experiment.toml", mlflow_store(tmp_path / "runs")
    on = environment_of_first_run(path, store, "attach = true")
    assert set(on) - {"OMP_NUM_THREADS"} == {"VINEDRESSER_ATTACH", "PYTHONPATH"}
    off = environment_of_first_run(path, store, "attach = false")
    assert set(off) - {"OMP_NUM_THREADS"} == set()
    own = environment_of_first_run(path, store, 'environment = { PYTHONPATH = "mine" }')
    assert own["PYTHONPATH"].endswith(f"{os.pathsep}mine")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with the judged runs of a script with three trainings."""
    folder = tmp_path_factory.mktemp("healthy")
    words = (str(SCRIPT), "--trainings", "3")
    assert attached(*words, cwd=folder, options=("--rule", "nonfinite")).returncode == 0
    return folder / "runs"


@pytest.mark.thorough
def test_run_judges_each_training_and_stops_the_script_for_any(
    tmp_path: Path, healthy: Path
) -> None:
    words = (str(SCRIPT), "--trainings", "4", "--nan", "3", "--pause", "0.01")
    done = attached(*words, cwd=tmp_path, options=("--rule", "nonfinite"))
    assert done.returncode == 3, done.stderr
    runs = [open_run(tmp_path / "runs" / name) for name in ("run", "run.2", "run.3")]
    assert not (tmp_path / "runs" / "run.4").exists()
    assert [run.status.state for run in runs] == ["stopped", "finished", "stopped"]
    assert [len(run.findings()) for run in runs] == [0, 0, 1]
    assert runs[0].status.reason.startswith("run.3: MSELoss is nan")
    assert done.stderr.count("nonfinite since step 20") == 1
    # These were over before anybody looked, and were judged all the same.
    for name in ("run", "run.2", "run.3"):
        assert (healthy / name / "findings" / "default.jsonl").read_bytes() == b""


@pytest.mark.thorough
def test_what_a_killed_flow_did_not_tell_a_further_run_is_mended(
    tmp_path: Path, healthy: Path
) -> None:
    for name in ("run", "run.2"):
        shutil.copytree(healthy / name, tmp_path / name)
    first, second = (LocalStorage(tmp_path / name) for name in ("run", "run.2"))
    second.delete("rules/default.json")
    write_record(first, TrackingRecord("sqlite:///mlflow.db", "1", "abc", settled=True))
    first.put("rules/default.json", [json.dumps({"rules": {}}).encode()])
    for _ in range(2):
        assert equip_additional(Path(first.location)) == [Path(second.location)]
        told = read_record(second, TrackingRecord)
        assert told == TrackingRecord("sqlite:///mlflow.db", "1", "", settled=False)
        assert second.exists("rules/default.json")
