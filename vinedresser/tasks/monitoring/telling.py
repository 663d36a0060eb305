"""What MLflow is told about a monitor: metrics of each window, tags, and the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vinedresser.drift import Baseline
from vinedresser.errors import TrackingError
from vinedresser.explain.reports.monitor.report import (
    MOST_WINDOWS,
    MonitorPage,
    write_monitor_report,
)
from vinedresser.infra.tracking import MetricNames, MetricSink, set_tags, upload
from vinedresser.store.records import read_record, write_record
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.judging_windows import read_progress
from vinedresser.tasks.monitoring.records import (
    AccuracyRecord,
    AlertRecord,
    Progress,
    WindowRecord,
    accuracy_key,
    alerts_of,
    window_key,
)

__all__ = ["tell_windows", "windows_of"]

# Seconds for MLflow to accept what was queued.
_PATIENCE = 60.0


def tell_windows(life: Life) -> None:
    """Send MLflow the windows that it does not know, the alerts, and the page; idempotent.

    Raises:
        TrackingError: MLflow did not accept it; the next call sends it again.
        StoreError: the folder cannot be read or written.
    """
    progress = read_progress(life)
    uri, run_id = life.monitor.tracking_uri, life.record.run_id
    new = [*windows_of(life, progress.told)]
    batches = [*_batches_of(life, progress)]
    if not new and not batches and progress.windows:
        return
    names, sink = MetricNames(), MetricSink(uri, run_id)
    for window in new:
        for name, value in _metrics(window.verdict):
            key = names.key(name, "predict")
            if key is not None:
                sink.log(key, value, step=window.number, time=window.last)
    for batch in batches:
        for name, value in _metrics(batch.verdict):
            key = names.key(name, "predict")
            if key is not None and name.endswith("/accuracy"):
                sink.log(key, value, step=batch.window, time=batch.time)
        sink.log("accuracy", _accuracy(batch), step=batch.window, time=batch.time)
    if not sink.close(_PATIENCE):
        raise TrackingError(
            f"{uri}: the metrics of {len(new)} windows of {life.monitor.name} were not accepted; "
            "the next run of the monitor sends them again"
        )
    alerts = alerts_of(life.storage)
    set_tags(uri, run_id, _tags(progress, alerts))
    if progress.windows:
        page = _write_page(life, progress, alerts)
        upload(uri, run_id, {page.name: page})
    write_record(
        life.storage, replace(progress, told=progress.windows, told_batches=progress.batches)
    )


def _write_page(life: Life, progress: Progress, alerts: list[AlertRecord]) -> Path:
    first = max(0, progress.windows - MOST_WINDOWS)
    windows = [*windows_of(life, first)]
    last = windows[-1]
    requests, _ = life.requests.after(last.begin, last.requests)
    page = MonitorPage(
        life.record.shown,
        Baseline.load(life.baseline),
        progress.windows,
        [one.verdict for one in windows],
        requests.columns,
        [one.text for one in alerts],
    )
    return write_monitor_report(page, life.folder / "monitor.html")


def windows_of(life: Life, first: int = 0) -> Iterator[WindowRecord]:
    """Yield the judged windows from a number on.

    Raises:
        CorruptData: one cannot be read.
        StoreError: the folder cannot be read.
    """
    for number in range(first, read_progress(life).windows):
        record = read_record(life.storage, WindowRecord, key=window_key(number))
        if record is not None:
            yield record


def _batches_of(life: Life, progress: Progress) -> Iterator[AccuracyRecord]:
    for number in range(progress.told_batches, progress.batches):
        record = read_record(life.storage, AccuracyRecord, key=accuracy_key(number))
        if record is not None:
            yield record


def _accuracy(batch: AccuracyRecord) -> float:
    return float(next(one["window"] for one in batch.verdict["features"]))


def _metrics(verdict: dict[str, Any]) -> Iterator[tuple[str, float]]:
    yield "alarm", float(bool(verdict["alarm"]))
    for one in verdict["features"]:
        for key in ("evidence", "how_far"):
            # Of what a window does not have, the distance is no number.
            if not isinstance(one[key], str):
                yield f"{key}/{one['name']}", float(one[key])


def _tags(progress: Progress, alerts: list[AlertRecord]) -> dict[str, Any]:
    tags: dict[str, Any] = {"monitor.windows": progress.windows, "monitor.alerts": len(alerts)}
    for alert in alerts:
        tags |= {"alert.id": alert.id, "alert.window": alert.window, "alert.text": alert.text}
    return tags
