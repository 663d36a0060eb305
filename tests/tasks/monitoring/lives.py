"""Lives of monitors without a model, and requests for them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.serving.unlimited import UNLIMITED
from vinedresser.drift import Baseline
from vinedresser.serving import RequestRecorder
from vinedresser.store.records import write_record
from vinedresser.tasks.config.monitor_file import load_monitor
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.records import MonitorRecord

__all__ = ["WINDOW", "baseline", "begin_life", "record", "write_monitor"]

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


def baseline() -> NDArray[np.float64]:
    """Return inputs [1000, 3]."""
    return np.random.default_rng(0).normal(size=(1000, 3))


def write_monitor(folder: Path, more: str = "") -> Path:
    """Write a monitor file."""
    path = folder / "monitor.toml"
    path.write_text(MONITOR + more, encoding="utf-8")
    return path


def begin_life(folder: Path, *, accuracy: bool = False) -> Life:
    """Begin a life with a baseline, without MLflow."""
    monitor = load_monitor(write_monitor(folder))
    life = Life(monitor, MonitorRecord("id", "small", 1, time.time(), monitor.fixed, "0"))
    rows = baseline()
    columns = {f"x{place}": rows[:, place] for place in range(3)}
    if accuracy:
        columns["prediction"] = (rows[:, 0] > 0).astype(np.int64)
    correct = np.random.default_rng(1).random(len(rows)) < 0.9 if accuracy else None
    Baseline.of(columns, correct=correct, categories=("prediction",) if accuracy else ()).save(
        life.baseline
    )
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
