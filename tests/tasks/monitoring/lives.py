"""Lives of monitors without a model, and requests for them."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from tests.serving.unlimited import UNLIMITED
from vinedresser.drift import Baseline
from vinedresser.serving import RequestRecorder
from vinedresser.store.records import write_record
from vinedresser.tasks.config.monitor_file import load_monitor
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.records import MonitorRecord

__all__ = [
    "WINDOW",
    "baseline",
    "begin_life",
    "record",
    "record_week",
    "week_inputs",
    "week_times",
    "write_monitor",
]

WINDOW = 50
_MODULE = "tests.tasks.monitoring.lives"

MONITOR = f"""
[monitor]
name = "small"
requests = "requests/service"

[baseline]
data = "{_MODULE}:baseline"

[window]
requests = {WINDOW}
"""


def baseline(rows: int = 1000) -> NDArray[np.float64]:
    """Return inputs [rows, 3]."""
    return np.random.default_rng(0).normal(size=(rows, 3))


def write_monitor(folder: Path, more: str = "") -> Path:
    """Write a monitor file."""
    path = folder / "monitor.toml"
    path.write_text(MONITOR + more, encoding="utf-8")
    return path


def begin_life(folder: Path, *, accuracy: bool = False, in_time_order: bool = True) -> Life:
    """Begin a life with a baseline, without MLflow."""
    monitor = load_monitor(write_monitor(folder))
    life = Life(monitor, MonitorRecord("id", "small", 1, time.time(), monitor.fixed, "0"))
    # So many labels show that they do not depend on each other.
    rows = baseline(3000 if accuracy else 1000)
    columns = {f"x{place}": rows[:, place] for place in range(3)}
    if accuracy:
        columns["prediction"] = (rows[:, 0] > 0).astype(np.int64)
    correct = np.random.default_rng(1).random(len(rows)) < 0.9 if accuracy else None
    Baseline.of(
        columns,
        correct=correct,
        categories=("prediction",) if accuracy else (),
        in_time_order=in_time_order,
    ).save(life.baseline)
    write_record(life.storage, life.record)
    return life


def record(
    folder: Path, count: int, *, shift: float = 0.0, seed: int = 1, answers: bool = False
) -> list[str]:
    """Record requests; return their ids."""
    recorder = RequestRecorder(folder / "requests", "service", limits=UNLIMITED)
    rows = np.random.default_rng(seed).normal(size=(count, 3)) + shift
    names = [f"{seed}-{place}" for place in range(count)]
    recorder.record(rows, (rows[:, 0] > 0).astype(np.int64) if answers else None, names)
    assert recorder.close()
    assert not recorder.problems
    assert not recorder.dropped
    return names


def week_times(first: int = 0, days: int = 56) -> NDArray[np.float64]:
    """Return the times of requests [N], a third as many at weekends; it begins with a Monday."""
    counts = [20 if day % 7 >= 5 else 60 for day in range(first, first + days)]
    parts = [(first + day + (np.arange(one) + 0.5) / one) for day, one in enumerate(counts)]
    # 5 January 1970 was a Monday.
    return (np.concatenate(parts) + 4 + 7 * 2800) * 86_400.0


def week_inputs(first: int = 0, days: int = 56, shift: float = 0.0) -> NDArray[np.float64]:
    """Return their inputs [N, 1], higher at weekends."""
    times = week_times(first, days)
    weekend = (times / 86_400.0 - 4) % 7 >= 5
    noise = np.random.default_rng(first).normal(size=len(times))
    return (noise + 2.0 * weekend + shift)[:, None]


def record_week(folder: Path, first: int, days: int, *, shift: float = 0.0) -> None:
    """Record requests at the times that they have."""
    recorder = RequestRecorder(folder / "requests", "service", limits=UNLIMITED)
    inputs = week_inputs(first, days, shift)
    for when, row in zip(week_times(first, days).tolist(), inputs, strict=True):
        with patch("time.time", return_value=when):
            recorder.record(row[None])
    assert recorder.close()
    assert not recorder.problems
    assert not recorder.dropped
