"""Judging the requests that have arrived, window by window."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from vinedresser.drift import Baseline, DriftMonitor, Verdict
from vinedresser.errors import KeyTaken, NotARun
from vinedresser.serving import Requests
from vinedresser.store.records import read_record, write_record
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.records import (
    AccuracyRecord,
    AlertRecord,
    Progress,
    WindowRecord,
    accuracy_key,
    alert_id,
    alert_key,
    window_key,
)

__all__ = ["Judged", "judge_windows", "read_progress"]


class Judged(NamedTuple):
    """What was judged.

    Attributes:
        windows: the new windows, in their order.
        problems: sentences about requests that could not be read.
    """

    windows: list[WindowRecord]
    problems: list[str]


def judge_windows(life: Life, *, settle: float = 30.0) -> Judged:
    """Judge all complete windows of requests that have not been judged.

    A kill between two steps loses nothing: a window whose progress is not on disk is judged again,
    with the same verdict. A life has one alert of a drift, since the requests have drifted until
    there is a new baseline, and one of requests that do not have the baseline's form.

    Args:
        life: the life of the monitor; its caller holds the lock.
        settle: age in seconds at which labels are read; see `RequestStore.labelled`.

    Raises:
        CorruptData: the baseline or the progress cannot be read.
        StoreError: the store of the requests refused, or the folder cannot be written.
    """
    monitor = life.monitor
    progress = read_progress(life)
    drift = _drift_monitor(life, progress)
    windows: list[WindowRecord] = []
    while True:
        try:
            requests, cursor = life.requests.after(progress.cursor, monitor.window.requests)
        except NotARun:
            # The answer says so.
            return Judged(windows, [])
        if len(requests) < monitor.window.requests:
            return Judged(
                windows, [*_judge_labels(life, drift, progress, settle), *life.requests.problems]
            )
        verdict = drift.update(requests.columns, times=requests.times)
        record = _record(progress, cursor, requests, verdict)
        write_record(life.storage, record, key=window_key(record.number))
        if verdict.alarm:
            since = record.number if verdict.since is None else verdict.since
            _raise_alert(life, "drift", verdict.summary, (record, since), requests)
        elif verdict.violations:
            _raise_alert(
                life, "form", "; ".join(verdict.violations), (record, record.number), requests
            )
        progress = replace(progress, windows=record.number + 1, cursor=cursor, state=drift.state())
        write_record(life.storage, progress)
        windows.append(record)


def _judge_labels(life: Life, drift: DriftMonitor, progress: Progress, settle: float) -> list[str]:
    """Judge the accuracy of predictions whose labels have become known since the last time.

    Returns:
        Sentences about labels that could not be used.
    """
    if math.isnan(drift.baseline.accuracy):
        return []
    found = life.requests.labelled(progress.labels, settle=settle)
    if not len(found.requests):
        return []
    predictions = found.requests.columns.get("prediction")
    if predictions is None:
        return ["labels have arrived, but the requests have no predictions"]
    names = life.monitor.model.classes
    correct = [
        label in (value, names[value] if 0 <= value < len(names) else None)
        for value, label in zip(predictions.tolist(), found.requests.labels, strict=True)
    ]
    verdict = drift.add_labels(correct)
    record = AccuracyRecord(
        number=progress.batches,
        window=max(progress.windows - 1, 0),
        requests=len(correct),
        unknown=len(found.unknown),
        time=time.time(),
        verdict=verdict.to_json(),
    )
    write_record(life.storage, record, key=accuracy_key(record.number))
    if verdict.alarm and progress.windows:
        last = read_record(life.storage, WindowRecord, key=window_key(record.window))
        assert last is not None
        since = last.number if verdict.since is None else verdict.since
        _raise_alert(life, "drift", verdict.summary, (last, since), found.requests)
    progress = replace(
        progress, state=drift.state(), labels=found.cursor, batches=progress.batches + 1
    )
    write_record(life.storage, progress)
    return []


def read_progress(life: Life) -> Progress:
    """Return how far the requests have been judged.

    Raises:
        CorruptData: the record cannot be read.
    """
    return read_record(life.storage, Progress) or Progress()


def _drift_monitor(life: Life, progress: Progress) -> DriftMonitor:
    baseline = Baseline.load(life.baseline)
    if progress.state:
        return DriftMonitor.resumed(baseline, progress.state)
    return DriftMonitor(baseline, **asdict(life.monitor.alarm))


def _record(
    progress: Progress, end: dict[str, Any], requests: Requests, verdict: Verdict
) -> WindowRecord:
    return WindowRecord(
        number=progress.windows,
        begin=progress.cursor,
        end=end,
        requests=len(requests),
        first=float(requests.times.min()),
        last=float(requests.times.max()),
        verdict=verdict.to_json(),
    )


def _raise_alert(
    life: Life, kind: str, text: str, when: tuple[WindowRecord, int], requests: Requests
) -> None:
    """Record the alert of a window, unless the life has one of this kind.

    Args:
        life: the life of the monitor.
        text: what it is about.
        when: the window, and the number of the window since which it is so.
    """
    window, since = when
    alert = AlertRecord(
        id=alert_id(life.record, kind),
        window=window.number,
        since=since,
        time=time.time(),
        text=text,
        ids=list(requests.ids),
    )
    with suppress(KeyTaken):
        write_record(life.storage, alert, key=alert_key(alert.id), exclusive=True)
