"""What MLflow is told about a monitor: metrics of each window, tags, and the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vinedresser.drift import Baseline
from vinedresser.errors import TrackingError
from vinedresser.explain.reports.monitor import (
    MOST_WINDOWS,
    MonitorPage,
    write_monitor_report,
)
from vinedresser.infra.services.tracking import NOTE_TAG, MetricNames, MetricSink, set_tags, upload
from vinedresser.store.records import read_record, write_record
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.judging_windows import read_progress
from vinedresser.tasks.monitoring.records import (
    AccuracyRecord,
    AlertRecord,
    AnswerRecord,
    Progress,
    WindowRecord,
    accuracy_key,
    alerts_of,
    window_key,
)

__all__ = ["tell_windows", "windows_of"]

# Seconds for MLflow to accept what was queued.
_PATIENCE = 60.0


def tell_windows(life: Life, answer: AnswerRecord) -> None:
    """Send MLflow the windows that it does not know, the answer, and the page; idempotent.

    Args:
        life: the life of the monitor.
        answer: what it says of all requests so far.

    Raises:
        TrackingError: MLflow did not accept it; the next call sends it again.
        StoreError: the folder cannot be read or written.
    """
    progress = read_progress(life)
    uri, run_id = life.monitor.tracking_uri, life.record.run_id
    new = [*windows_of(life, progress.told)]
    batches = [*_batches_of(life, progress)]
    names, sink = MetricNames(), MetricSink(uri, run_id)
    for window in new:
        found = [*_metrics(window.verdict)]
        _log(sink, names, found, window.number, window.last)
    for batch in batches:
        found = [metric for metric in _metrics(batch.verdict) if metric[0].endswith("/accuracy")]
        _log(sink, names, found, batch.window, batch.time)
        for accuracy in _accuracies(batch):
            sink.log("accuracy", accuracy, step=batch.window, time=batch.time)
    if not sink.close(_PATIENCE):
        raise TrackingError(
            f"{uri}: the metrics of {len(new)} windows of {life.monitor.name} were not accepted; "
            "the next run of the monitor sends them again"
        )
    alerts = alerts_of(life.storage)
    set_tags(uri, run_id, _tags(answer, alerts))
    page = _write_page(life, progress, alerts, answer)
    upload(uri, run_id, {page.name: page})
    write_record(
        life.storage, replace(progress, told=progress.windows, told_batches=progress.batches)
    )


def _write_page(
    life: Life, progress: Progress, alerts: list[AlertRecord], answer: AnswerRecord
) -> Path:
    first = max(0, progress.windows - MOST_WINDOWS)
    windows = [*windows_of(life, first)]
    columns: dict[str, Any] = {}
    if windows:
        columns = life.requests.after(windows[-1].begin, windows[-1].requests)[0].columns
    page = MonitorPage(
        name=life.record.shown,
        answer=answer.answer,
        text=answer.text,
        tone=answer.tone,
        requests=_numbers(answer),
        reasons=answer.reasons,
        baseline=Baseline.load(life.baseline),
        windows=progress.windows,
        verdicts=[window.verdict for window in windows],
        columns=columns,
        alerts=[alert.text for alert in alerts],
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


def _log(
    sink: MetricSink,
    names: MetricNames,
    metrics: list[tuple[str, float]],
    step: int,
    time: float,
) -> None:
    for name, value in metrics:
        key = names.key(name, "predict")
        if key is not None:
            sink.log(key, value, step=step, time=time)


def _accuracies(batch: AccuracyRecord) -> list[float]:
    """Return the accuracy of a batch of labels alone; [] if all of them are unknown."""
    found = [one["reported"].get("accuracy") for one in batch.verdict["features"]]
    return [one for one in found if isinstance(one, float)]


def _metrics(verdict: dict[str, Any]) -> Iterator[tuple[str, float]]:
    # The absence of an alarm says nothing where nothing could be told.
    if verdict["answer"] != "cannot tell":
        yield "alarm", float(bool(verdict["alarm"]))
    for one in verdict["features"]:
        # Without an alarm, a distance may be chance.
        keys = ("evidence", "how_far" if one["alarm"] else "would_have_seen")
        for key in keys:
            # Of what a window does not have, there is no number.
            if one[key] is not None and not isinstance(one[key], str):
                yield f"{key}/{one['name']}", float(one[key])


def _numbers(answer: AnswerRecord) -> dict[str, int | None]:
    """Return the numbers of requests; None where they are unknown."""
    keys = ("came", "recorded", "lost", "judged", "counted", "waiting")
    return {key: getattr(answer, key) for key in keys}


def _tags(answer: AnswerRecord, alerts: list[AlertRecord]) -> dict[str, Any]:
    numbers = _numbers(answer).items()
    tags: dict[str, Any] = {
        NOTE_TAG: answer.text,
        "monitor.answer": answer.answer,
        "monitor.reasons": "; ".join(answer.reasons),
        **{f"requests.{key}": "unknown" if one is None else one for key, one in numbers},
        "monitor.windows": answer.windows,
        "monitor.alerts": len(alerts),
    }
    for alert in alerts:
        tags |= {"alert.id": alert.id, "alert.window": alert.window, "alert.text": alert.text}
    return tags
