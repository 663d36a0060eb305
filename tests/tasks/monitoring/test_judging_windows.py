"""Windows of requests are judged once, whatever is killed in between."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from tests.paths import ROOT
from tests.tasks.monitoring.lives import (
    WINDOW,
    begin_life,
    record,
    record_week,
    week_times,
    write_monitor,
)
from tests.warm_python import COMMANDS
from vinedresser.errors import ConfigError, UntrustedTracking
from vinedresser.explain.alerts.baseline import main as make_baseline
from vinedresser.infra.catalog.known_tracking import remember_tracking, tracking
from vinedresser.serving import RequestStore
from vinedresser.store.records import TrackingRecord, write_record
from vinedresser.tasks.config.monitor_file import load_monitor
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.explaining import window_subject
from vinedresser.tasks.monitoring.judging_windows import judge_windows, read_progress
from vinedresser.tasks.monitoring.records import MonitorRecord, alerts_of

# Judges the requests of a life; the process is killed before one of the changes of its records.
KILLED = """
import os, signal, sys
from pathlib import Path
from vinedresser.tasks.config.monitor_file import load_monitor
from vinedresser.tasks.monitoring.arming import current_life
from vinedresser.tasks.monitoring.judging_windows import judge_windows

left = int(sys.argv[2])

def count(event, arguments):
    global left
    if event in ("os.rename", "os.link") and str(arguments[1]).endswith(".json"):
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

life = current_life(load_monitor(Path(sys.argv[1])))
sys.addaudithook(count)
judge_windows(life)
"""


def files(life: Life) -> dict[str, bytes]:
    """Return the records of windows and alerts."""
    return {
        path.name: path.read_bytes()
        for folder in ("windows", "alerts")
        for path in (life.folder / folder).glob("*.json")
    }


def test_only_complete_windows_are_judged_and_each_once(tmp_path: Path) -> None:
    life = begin_life(tmp_path)
    record(tmp_path, 2 * WINDOW + 10)
    first = judge_windows(life)
    assert [one.number for one in first.windows] == [0, 1]
    assert judge_windows(life).windows == []
    with pytest.raises(ConfigError, match="life-1: no window 2"):
        window_subject(life, 2)
    record(tmp_path, WINDOW - 10, seed=2)
    [third] = judge_windows(life).windows
    assert third.number == 2
    assert third.requests == WINDOW
    assert not third.verdict["alarm"]
    ids = set[str]()
    for window in (*first.windows, third):
        requests, _ = life.requests.after(window.begin, window.requests)
        ids |= {*requests.ids}
    assert len(ids) == 3 * WINDOW


def test_a_drift_has_one_alert_with_the_requests_of_its_window(tmp_path: Path) -> None:
    life = begin_life(tmp_path)
    record(tmp_path, 4 * WINDOW)
    judge_windows(life)
    assert alerts_of(life.storage) == []
    names = record(tmp_path, 4 * WINDOW, shift=3.0, seed=2)
    judge_windows(life)
    [alert] = alerts_of(life.storage)
    assert alert.window >= alert.since == 4
    assert {*alert.ids} <= {*names}
    assert len(alert.ids) == WINDOW
    assert "x0: mean" in alert.text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "windows", "alerts"),
    [
        pytest.param(1, 0, 0, id="before the first progress"),
        pytest.param(3, 1, 0, id="before the alert"),
        pytest.param(4, 1, 1, id="before the progress with the alert"),
    ],
)
def test_a_kill_changes_nothing(changes: int, windows: int, alerts: int, tmp_path: Path) -> None:
    life = begin_life(tmp_path)
    record(tmp_path, 3 * WINDOW, shift=9.0)
    words = ["-c", KILLED, str(tmp_path / "monitor.toml"), str(changes)]
    done = COMMANDS.run(words, ROOT, os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert read_progress(life).windows == windows
    assert len(alerts_of(life.storage)) == alerts
    judge_windows(life)
    found, last = files(life), read_progress(life)
    assert last.windows == 3
    # All windows anew: the alert is still the first one, with its time.
    write_record(life.storage, replace(last, windows=0, cursor=None, state={}))
    judge_windows(life)
    assert files(life) == found
    assert read_progress(life) == last


def test_a_column_that_is_missing_raises_an_alert_of_its_own(tmp_path: Path) -> None:
    life = begin_life(tmp_path, accuracy=True)
    record(tmp_path, WINDOW)
    [window] = judge_windows(life).windows
    assert window.verdict["violations"] == ["prediction: missing"]
    [alert] = alerts_of(life.storage)
    assert (alert.text, alert.window) == ("prediction: missing", 0)


def test_mlflow_is_found_by_the_folder_of_a_monitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    life = begin_life(tmp_path)
    monitors, uri = life.monitor.state.parent, f"sqlite:///{tmp_path / 'mlflow.db'}"
    (tmp_path / "mlflow.db").touch()
    write_record(life.storage, TrackingRecord(uri, "3", "run"))
    with pytest.raises(UntrustedTracking):
        tracking(monitors)
    remember_tracking(life.monitor.state, uri)
    for place in (monitors, life.monitor.state):
        assert tracking(place) == TrackingRecord(uri, "3", "run")


@pytest.mark.thorough
def test_the_accuracy_of_late_labels_raises_an_alert(tmp_path: Path) -> None:
    life = begin_life(tmp_path, accuracy=True)
    names = record(tmp_path, 8 * WINDOW, answers=True)
    judge_windows(life)
    store = RequestStore(life.monitor.requests)
    requests = store.of_ids(names)
    predictions = requests.columns["prediction"]
    right = np.random.default_rng(3).random(len(predictions)) < 0.5
    store.add_labels(requests.ids, np.where(right, predictions, 1 - predictions).tolist())
    judge_windows(life, settle=0.0)
    [alert] = alerts_of(life.storage)
    assert "accuracy" in alert.text
    progress = read_progress(life)
    assert progress.batches == 1
    judge_windows(life, settle=0.0)
    assert read_progress(life) == progress


def begin_weeks(folder: Path, more: str) -> Life:
    """Begin a life whose baseline is of eight weeks."""
    path = write_monitor(folder)
    text = path.read_text().replace(':baseline"', f':week_inputs"\n{more}')
    path.write_text(text)
    monitor = load_monitor(path)
    life = Life(monitor, MonitorRecord("id", "small", 1, 0.0, monitor.fixed, "0"))
    table = monitor.baseline
    make_baseline(
        model=asdict(monitor.model),
        data=table.data,
        rows=table.rows,
        in_time_order=table.in_time_order,
        period=table.length,
        times=table.times,
        examples=4,
        destination=str(life.baseline),
    )
    write_record(life.storage, life.record)
    return life


@pytest.mark.thorough
def test_requests_of_uneven_weeks_are_compared_by_their_times(tmp_path: Path) -> None:
    times = f"{week_times.__module__}:week_times"
    life = begin_weeks(tmp_path, f'period = "7d"\ntimes = "{times}"')
    record_week(tmp_path, 56, 21)
    windows = judge_windows(life).windows
    assert len(windows) == 21 * (5 * 60 + 2 * 20) // 7 // WINDOW
    assert not any(window.verdict["alarm"] for window in windows)
    record_week(tmp_path, 77, 7, shift=0.7)
    [alarm, *_] = [
        window.number for window in judge_windows(life).windows if window.verdict["alarm"]
    ]
    assert alarm - len(windows) <= 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('period = "7 y"', 'period: must be a time such as "90 s"'),
        ('period = "0d"\ntimes = "a:b"', 'period: must be a time such as "90 s"'),
        ('period = "7d"', "period: a time needs times"),
        ('times = "a:b"', "times: need a period"),
        ('period = 2000\ntimes = "a:b"', "times: need a period"),
        ('period = "7d"\ntimes = "no_such_package:b"', "baseline.times"),
    ],
)
def test_a_period_and_times_need_each_other(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        begin_weeks(tmp_path, more)


def test_times_are_as_many_as_the_inputs(tmp_path: Path) -> None:
    """Of another function than that of the times."""
    times = f"{week_times.__module__}:baseline"
    with pytest.raises(
        ConfigError, match=r"returned times of shape \[1000, 3\]; expected \[2720\]"
    ):
        begin_weeks(tmp_path, f'period = "7d"\ntimes = "{times}"')
