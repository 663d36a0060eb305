"""`vinedresser train --remedy` for real: stopped runs are begun again, corrected."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from vinedresser.objects import LocalStorage, open_storage
from vinedresser.processes import marked_processes
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import ExitRecord, SupervisorRecord, read_record

SCRIPT = Path(__file__).with_name("remedy_training.py")

EXPERIMENT = f"""
[run]
name = "line"
command = ["python", "{SCRIPT}"]
store = "runs"
max_concurrent = 1
grace = 5.0
total_steps = 200
[rules]
preset = "none"
[rules.nonfinite]
every = 1
"""

ReadMlflow = Callable[[Path], dict[str, Any]]

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Kill whatever a failed test left behind."""
    yield
    for pid in marked_processes(f"REMEDY={tmp_path}"):
        os.kill(pid, signal.SIGKILL)


def start(tmp_path: Path, tables: str, *options: str) -> subprocess.Popen[bytes]:
    """Start `vinedresser train`; its output is in flow.log."""
    (tmp_path / "experiment.toml").write_text(EXPERIMENT + tables, encoding="utf-8")
    with (tmp_path / "flow.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "vinedresser", "train", "experiment.toml", *options],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            env={**os.environ, "COLUMNS": "250", "REMEDY": str(tmp_path)},
        )


def said(tmp_path: Path, flow: subprocess.Popen[bytes], code: int = 0) -> str:
    """Return what a flow said, which is to end with an exit code."""
    ended = flow.wait(timeout=250)
    output = (tmp_path / "flow.log").read_text(encoding="utf-8")
    assert ended == code, output
    return output


def steps_of(store: Path, name: str) -> list[int]:
    return [int(step) for step in open_run(store / name).steps("train")]


@pytest.mark.slow
def test_stopped_runs_are_begun_again_until_cured(tmp_path: Path, mlflow_runs: ReadMlflow) -> None:
    flow = start(
        tmp_path,
        """
        [variants.too-fast]
        parameters = { lr = 100 }
        [variants.surge]
        parameters = { lr = 0.05, steps = 200, surge = 60 }
        [remedy]
        times = 2
        resume = "resume"
        """,
    )
    output = said(tmp_path, flow)
    store = tmp_path / "runs"
    first, once, twice = (
        open_run(store / f"line-too-fast{end}") for end in ("", "-remedy-1", "-remedy-2")
    )
    assert [run.status.state for run in (first, once, twice)] == ["stopped", "stopped", "finished"]
    # The second correction builds on the first; whole numbers stay whole.
    assert [run.info.parameters for run in (first, once, twice)] == [
        {"lr": 100},
        {"lr": 1},
        {"lr": 0.01},
    ]
    remedy = twice.info.remedy
    assert (remedy["first"], remedy["attempt"]) == ("line-too-fast", 2)
    assert remedy["stopped"] == "line-too-fast-remedy-1"
    assert remedy["finding"]["rule"] == "nonfinite"
    assert remedy["changed"] == {"lr": [1, 0.01]}
    assert twice.steps("train").tolist() == list(range(200))

    # From the last checkpoint before the surge, with the steps that were left.
    resumed = open_run(store / "line-surge-remedy-1")
    assert resumed.info.remedy["checkpoint"] == "checkpoints/step-60.safetensors"
    assert resumed.info.remedy["stopped"] == "line-surge"
    assert resumed.info.parameters["lr"] == pytest.approx(0.0005)
    assert resumed.info.total_steps == 140
    assert resumed.status.state == "finished"
    assert steps_of(store, "line-surge-remedy-1") == list(range(140))
    log = (store / "line-surge-remedy-1" / "log.txt").read_text(encoding="utf-8")
    assert "resumed after 60 steps" in log

    check_slots(store)
    check_mlflow(mlflow_runs(store))
    check_words(output)
    report = (store / "line-too-fast-remedy-2" / "report.html").read_text(encoding="utf-8")
    assert 'href="../line-too-fast/report.html"' in report
    assert "lr 0.01 instead of 1" in report


def check_slots(store: Path) -> None:
    """Attempts take a slot as all runs do: here, no two runs at the same time."""
    spans = []
    for record in store.glob("*/run.json"):
        storage = LocalStorage(record.parent)
        began, ended = read_record(storage, SupervisorRecord), read_record(storage, ExitRecord)
        assert began is not None
        assert ended is not None
        spans.append((began.started, ended.ended))
    spans.sort()
    assert len(spans) == 5
    for before, after in itertools.pairwise(spans):
        assert before[1] <= after[0]


def check_mlflow(recorded: dict[str, Any]) -> None:
    first = recorded["line-too-fast"]
    assert first["status"] == "KILLED"
    assert "mlflow.parentRunId" not in first["tags"]
    assert first["tags"]["remedy.cured_by"] == "line-too-fast-remedy-2"
    assert first["tags"]["remedy.cure"] == "lr 0.01 instead of 100"
    parents = {recorded[f"line-too-fast-remedy-{n}"]["tags"]["mlflow.parentRunId"] for n in (1, 2)}
    assert parents == {first["id"]}
    attempt = recorded["line-too-fast-remedy-1"]
    assert attempt["status"] == "KILLED"
    assert attempt["params"] == {"lr": "1"}
    tags = {name: said for name, said in attempt["tags"].items() if name.startswith("remedy.")}
    assert tags == {
        "remedy.of": "line-too-fast",
        "remedy.attempt": "1",
        "remedy.stopped": "line-too-fast",
        "remedy.rule": "nonfinite",
        "remedy.reason": first["tags"]["stop.reason"],
        "remedy.changed": "lr 1 instead of 100",
        "remedy.begins": "from the start",
    }
    assert recorded["line-too-fast-remedy-2"]["status"] == "FINISHED"


def check_words(output: str) -> None:
    assert re.search("retries line-too-fast from the start: lr 1 .*100", output)
    assert re.search(
        r"retries line-surge from checkpoints/step-60\.safetensors .*: lr 0\.0005 .*0\.05 "
        r"\(nonfinite\)",
        output,
    )
    assert re.search(
        r"^line-too-fast: cured by lr 0\.01 .*100 \(line-too-fast-remedy-2\): "
        r"MSELoss \S+ .*(nan|inf)$",
        output,
        flags=re.MULTILINE,
    )


@pytest.mark.slow
def test_a_flow_that_is_killed_in_an_attempt(tmp_path: Path, mlflow_runs: ReadMlflow) -> None:
    tables = """
        [run.parameters]
        lr = 1.0
        steps = 1000000
        pause = 0.005
        """
    flow = start(tmp_path, tables, "--remedy")
    store = tmp_path / "runs"
    attempt = store / "line-remedy-1"
    until(lambda: list(attempt.glob("index/0/*.json")))
    os.kill(flow.pid, signal.SIGKILL)
    flow.wait()
    until(lambda: not list(marked_processes(f"REMEDY={tmp_path}")))
    done = subprocess.run(
        [sys.executable, "-m", "vinedresser", "reconcile", "runs"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "line-remedy-1" in done.stdout
    assert (open_run(attempt).status.state, open_run(attempt).status.by) == ("stopped", "owner")
    recorded = mlflow_runs(store)
    assert sorted(recorded) == ["line", "line-remedy-1"]
    assert {entry["status"] for entry in recorded.values()} == {"KILLED"}
    assert recorded["line-remedy-1"]["tags"]["mlflow.parentRunId"] == recorded["line"]["id"]


@pytest.mark.slow
def test_ctrl_c_ends_the_attempts_too(tmp_path: Path, mlflow_runs: ReadMlflow) -> None:
    tables = """
        [run.parameters]
        lr = 1.0
        steps = 1000000
        pause = 0.005
        """
    flow = start(tmp_path, tables, "--attempts", "9")
    store = tmp_path / "runs"
    until(lambda: list((store / "line-remedy-1").glob("index/0/*.json")))
    os.kill(flow.pid, signal.SIGINT)
    output = said(tmp_path, flow, 130)
    assert open_run(store / "line-remedy-1").status.by == "person"
    assert not (store / "line-remedy-2").exists()
    assert "RUNNING" not in {entry["status"] for entry in mlflow_runs(store).values()}
    assert re.search("line: not cured by lr 0.01 .*: stopped on request", output)


@pytest.mark.slow
def test_attempts_on_s3(s3: str, tmp_path: Path) -> None:
    tables = "parameters = { lr = 100.0 }\n"
    (tmp_path / "experiment.toml").write_text(
        EXPERIMENT.replace('store = "runs"', f'store = "{s3}"\n{tables}'), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "vinedresser", "train", "experiment.toml", "--remedy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert open_run(f"{s3}/line-remedy-2").status.state == "finished"
    remedy = json.loads(open_storage(f"{s3}/line-remedy-2").get("run.json"))["remedy"]
    assert remedy["changed"] == {"lr": [1.0, 0.01]}
    assert "line: cured by lr 0.01 instead of 100 (line-remedy-2)" in done.stdout
