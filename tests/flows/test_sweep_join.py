"""Two flows on one sweep, for real: one of them is killed, and there is one result."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.test_sweep_flow import configurations, start, sweep, write
from tests.waiting import until
from vinedresser.store.reading.reader import open_run

# Seconds that a flow may take to begin a trial: half a minute at a load of 20, two with `nice 19`.
_START = 300.0

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("shared_prefect")]


def flows(store: Path) -> dict[int, str]:
    """Return the flow that began each trial."""
    if not (store / "journal.log").exists():
        return {}
    lines = [json.loads(line) for line in (store / "journal.log").read_bytes().splitlines()]
    said = [(one["trial_id"], one["user_attr"]) for one in lines if "user_attr" in one]
    found: dict[int, str] = {}
    for trial, attribute in said:
        if "flow" in attribute:
            found.setdefault(trial, attribute["flow"])
    return found


def held(folder: Path, xs: list[float]) -> Path:
    """Write a sweep file; return the file during whose existence its trials do not end."""
    hold = folder / "hold"
    hold.touch()
    write(folder, f"x = {xs}", parameters=f"hold = '{hold}'")
    return hold


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["host", "other"])
def test_a_killed_flow_leaves_its_trials_to_the_other_one(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]], killed: str
) -> None:
    xs = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    hold = held(tmp_path, xs)
    store = tmp_path / "runs" / "search"
    code, output = sweep(tmp_path, "--join")
    assert code == 2
    assert "no sweep to join" in output
    host = start(tmp_path)
    until(lambda: bool(flows(store)), seconds=_START)
    code, output = sweep(tmp_path, "--resume")
    assert code == 2
    assert "another process is running this sweep" in output
    other = start(tmp_path, "--join")
    until(lambda: len(set(flows(store).values())) == 2, seconds=_START)
    dying, living = (host, other) if killed == "host" else (other, host)
    dying.send_signal(signal.SIGKILL)
    # Its trainings have its output, and end when they are let go.
    hold.unlink()
    dying.communicate()
    output, _ = living.communicate()
    assert living.returncode == 0, output
    assert "trials           8 finished" in output
    assert "best             trial-0007: accuracy 0.8" in output
    assert [one["x"] for one in configurations(store)] == xs
    runs = [open_run(path) for path in store.glob("trial-*") if path.is_dir()]
    finished = [run for run in runs if run.status.state == "finished"]
    assert sorted(run.info.parameters["x"] for run in finished) == xs
    tags = mlflow_runs(tmp_path / "runs")["search"]
    assert tags["status"] == "FINISHED"
    assert (tags["tags"]["sweep.finished"], tags["tags"]["sweep.running"]) == ("8", "0")
    assert (store / "sweep.html").exists()


@pytest.mark.slow
def test_the_host_awaits_the_trials_of_others_and_reports_on_all(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    hold = held(tmp_path, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    store = tmp_path / "runs" / "search"
    host = start(tmp_path)
    until(lambda: bool(flows(store)), seconds=_START)
    other = start(tmp_path, "--join")
    until(lambda: len(set(flows(store).values())) == 2, seconds=_START)
    hold.unlink()
    told, _ = other.communicate()
    output, _ = host.communicate()
    assert (host.returncode, other.returncode) == (0, 0), told + output
    assert "trials           6 finished" in output
    assert mlflow_runs(tmp_path / "runs")["search"]["tags"]["sweep.finished"] == "6"
    assert not (store / "flows").exists() or not [*(store / "flows").iterdir()]
