"""A deployed retention file on a real Prefect server: runs are listed, then removed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flows.standing import Standing, vinedresser
from tests.tasks.test_retention import KILLED, ended_run
from vinedresser import open_store
from vinedresser.tasks.retention_reasons import pin

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


def test_a_store_keeps_its_bounds_by_schedule(prefect: Standing, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    for days in (1, 2, 3, 4, 5):
        ended_run(store / f"run-{days}", days=days)
    pin(store / "run-4", "the paper")
    file = tmp_path / "old.toml"
    file.write_text('[retention]\nstore = "runs"\nkeep = 2\n', encoding="utf-8")
    said = vinedresser(tmp_path, "deploy", "old.toml", "--cron", "0 4 * * *")
    assert "deployed retain/old on the work pool vinedresser, at 0 4 * * *, UTC" in said

    flow_run = prefect.begin("retain/old")
    prefect.await_state(flow_run, "COMPLETED")
    state = prefect.call("GET", f"flow_runs/{flow_run}")["state"]
    assert state["name"] == "Listed"
    assert state["message"] == "2 runs, 0.0 MB would be removed: delete = true"
    [text] = prefect.artifacts("retain-old")
    assert "- run-5 (ended " in text
    assert "stays: pinned by" in text
    assert "- 2 runs stay: among the newest 2 (keep)" in text
    assert len(open_store(store)) == 5

    # The file is read again; and a removal was killed meanwhile, which is no half of a run.
    with file.open("a", encoding="utf-8") as more:
        more.write("delete = true\n")
    command = [sys.executable, "-c", KILLED, str(store / "run-5"), "os.remove", "exit.json"]
    assert subprocess.run(command, check=False).returncode == -9
    assert "run-5" not in open_store(store)
    flow_run = prefect.begin("retain/old")
    prefect.await_state(flow_run, "COMPLETED")
    state = prefect.call("GET", f"flow_runs/{flow_run}")["state"]
    assert (state["name"], state["message"]) == ("Removed", "1 run, 0.0 MB removed")
    assert sorted(open_store(store)) == ["run-1", "run-2", "run-4"]
    assert not (store / "run-5").exists()
    ended = time.strftime("%Y-%m-%d", time.localtime(time.time() - 3 * 86_400))
    assert f"- run-3 (ended {ended}" in prefect.artifacts("retain-old")[-1]
