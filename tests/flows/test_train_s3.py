"""Flow `train` with its runs on S3: judged, stopped and recorded there, and mended after a kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.paths import SCRIPTS
from tests.waiting import until
from vinedresser import open_run
from vinedresser.infra.catalog.state_folder import store_state_folder
from vinedresser.objects import open_storage
from vinedresser.store.spool import spools

SCRIPT = SCRIPTS / "unhooked_training.py"

# A training with a hook, which needs no framework, and several without.
EITHER = f"""
import runpy
import sys
from vinedresser.capture import Hook

if "--hooked" not in sys.argv:
    runpy.run_path("{SCRIPT}", run_name="__main__")
    sys.exit()
with Hook() as hook:
    for step in range(200):
        hook.step(loss=1 / (1 + step))
"""

ReadMlflow = Callable[[Path], dict[str, Any]]

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


def write(tmp_path: Path, text: str, script: str = str(SCRIPT)) -> None:
    """Write the experiment file; runs are called after it."""
    head = f'[run]\nname = "far"\ncommand = ["python", "{script}"]\n'
    (tmp_path / "experiment.toml").write_text(head + text, encoding="utf-8")


@pytest.mark.thorough
def test_runs_on_s3_are_judged_stopped_and_recorded(
    s3: str, tmp_path: Path, mlflow_runs: ReadMlflow
) -> None:
    (tmp_path / "either.py").write_text(EITHER, encoding="utf-8")
    write(
        tmp_path,
        f"""
        store = "{s3}"
        max_concurrent = 2
        [variants.good]
        parameters = {{ hooked = true }}
        [variants.folds]
        parameters = {{ trainings = 3, nan = 2, steps = 100, pause = 0.01 }}
        """,
        "either.py",
    )
    taken = open_storage(f"{s3}/far-good")
    taken.put("run.json", [b'{"id": "0", "name": "far-good", "created": 0}'])
    done = vinedresser("train", "experiment.toml", cwd=tmp_path, columns=200, code=0)
    state = store_state_folder(s3)
    assert f"in {s3}" in done.stdout
    assert f"MLflow sqlite:///{state}/mlflow.db" in done.stdout
    assert spools() == []

    good, first, second = (open_run(f"{s3}/far-{one}") for one in ("good-2", "folds", "folds.2"))
    assert good.status.state == "finished"
    assert good.steps("train").tolist() == list(range(200))
    # The script is one program: it was stopped for its second training.
    for run in (first, second):
        assert (run.status.state, run.status.rule) == ("stopped", "nonfinite")
    assert first.status.reason.startswith("far-folds.2: MSELoss is nan at step 20")
    assert first.steps("train").tolist() == list(range(100))
    assert second.steps("train").tolist() == list(range((second.status.step or 0) + 1))
    assert "nonfinite" in {finding.rule for finding in second.findings()}
    assert not open_storage(f"{s3}/far-folds.3").exists("run.json")

    recorded = mlflow_runs(state)
    assert {name: entry["status"] for name, entry in recorded.items()} == {
        "far-good-2": "FINISHED",
        "far-folds": "KILLED",
        "far-folds.2": "KILLED",
    }
    assert recorded["far-good-2"]["steps"] == list(range(200))
    assert recorded["far-good-2"]["tags"]["vinedresser.directory"] == f"{s3}/far-good-2"
    assert recorded["far-folds.2"]["tags"]["stop.rule"] == "nonfinite"
    assert {"findings", "report.html"} <= set(recorded["far-folds.2"]["files"])
    for run in (good, first, second):
        assert b"<html" in run.storage.get("report.html")

    # From elsewhere: nothing but the store.
    status = vinedresser("status", s3, cwd=tmp_path, code=0).stdout
    assert re.search(r"far-good-2 +finished +200", status)
    assert re.search(r"far-folds\.2 +stopped", status)
    assert "losses/MSELoss" in vinedresser("show", f"{s3}/far-folds.2", cwd=tmp_path, code=0).stdout
    assert "nothing to reconcile" in vinedresser("reconcile", s3, cwd=tmp_path, code=0).stdout


@pytest.mark.slow
def test_a_killed_flow_is_mended(s3: str, tmp_path: Path, mlflow_runs: ReadMlflow) -> None:
    write(
        tmp_path,
        """
        max_concurrent = 1
        grace = 5.0
        parameters = { steps = 100000, pause = 0.01 }
        [variants.one]
        [variants.two]
        [rules]
        preset = "none"
        """,
    )
    with (tmp_path / "flow.log").open("wb") as log:
        flow = subprocess.Popen(
            [sys.executable, "-m", "vinedresser", "train", "--store", s3, "experiment.toml"],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    one, two = (open_storage(f"{s3}/far-{name}") for name in ("one", "two"))
    until(lambda: one.list("index/0/"), "the first commit")
    # The second waits for its turn: nobody else gets its name, and nobody sees a run there.
    assert (two.exists("reserved.json"), two.exists("run.json")) == (True, False)
    os.kill(flow.pid, signal.SIGKILL)
    flow.wait()
    state = store_state_folder(s3)

    said = vinedresser("reconcile", s3, cwd=tmp_path, code=0).stdout
    assert "far-one   stopped; MLflow brought up to date" in said
    assert "far-two   killed; MLflow brought up to date" in said
    assert spools() == []
    assert "nothing to reconcile" in vinedresser("reconcile", s3, cwd=tmp_path, code=0).stdout
    run = open_run(one)
    assert (run.status.state, run.status.by) == ("stopped", "owner")
    assert one.list("checkpoints/")
    assert "never started" in open_run(two).status.reason
    recorded = mlflow_runs(state)
    assert {entry["status"] for entry in recorded.values()} == {"KILLED"}
    assert recorded["far-one"]["steps"]
    for entry in recorded.values():
        assert "report.html" in entry["files"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("s3://not-made/runs", "there is no bucket"),
        ("s3://", "has no bucket"),
    ],
)
def test_a_store_that_is_not_there_is_one_line(
    s3: str, tmp_path: Path, store: str, message: str
) -> None:
    write(tmp_path, "")
    done = vinedresser("train", "--store", store, "experiment.toml", cwd=tmp_path, code=2)
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not store_state_folder(store).exists()


@pytest.mark.thorough
def test_a_server_that_is_away_is_one_line(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, f'store = "{s3}"')
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = vinedresser("train", "experiment.toml", cwd=tmp_path, code=2)
    assert "no server answers" in done.stderr
    assert len(done.stderr.splitlines()) == 1
