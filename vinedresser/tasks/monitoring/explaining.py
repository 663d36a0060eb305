"""Explaining an alert or a window: inputs from the service, saliency, and a run in MLflow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, DriftError, KeyTaken, StoreError
from vinedresser.explain.alerts.files import FIGURES, PAGE, SHEET
from vinedresser.infra.services.tracking import DIRECTORY_TAG, RUN_TAG, create_run, finish, set_tags
from vinedresser.objects import LocalStorage
from vinedresser.objects.files import make_folders
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.records import read_record, write_record
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.model_process import run_with_model
from vinedresser.tasks.monitoring.records import (
    AlertRecord,
    ExplanationRecord,
    WindowRecord,
    alert_id,
    alert_key,
    alerts_of,
    explanation_folder,
    tone_of,
    window_key,
)

__all__ = [
    "Explanation",
    "Subject",
    "alert_subject",
    "ask_for_inputs",
    "explain",
    "is_cooling",
    "is_explained",
    "skip",
    "window_subject",
]

_PROCESS = "vinedresser.explain.alerts.process:main"
_LOOK = 0.5
# Bytes of figures that are read.
_MOST_FIGURES = 16 << 20
_PARENT = "mlflow.parentRunId"


@dataclass(frozen=True)
class Subject:
    """What is explained: the window of an alert, or one that was chosen by hand.

    Attributes:
        id: id of the alert, or one of the window's own.
        text: what has drifted.
        ids: ids of its requests.
        is_alert: whether it is an alert's.
    """

    id: str
    window: WindowRecord
    text: str
    ids: Sequence[str]
    is_alert: bool


@dataclass(frozen=True)
class Explanation:
    """A complete explanation."""

    record: ExplanationRecord
    page: Path


def alert_subject(life: Life, alert: str | None) -> Subject:
    """Return the window of an alert.

    Args:
        alert: id of the alert; None: the last one.

    Raises:
        ConfigError: there is no such alert.
        CorruptData: its record cannot be read.
    """
    if alert is None:
        alerts = alerts_of(life.storage)
        if not alerts:
            raise ConfigError(f"{life.folder}: no alert to explain; choose a window with --window")
        found: AlertRecord | None = alerts[-1]
    else:
        found = read_record(life.storage, AlertRecord, key=alert_key(alert))
    if found is None:
        raise ConfigError(f"{life.folder}: no alert {alert}")
    return Subject(found.id, _window(life, found.window), found.text, found.ids, is_alert=True)


def window_subject(life: Life, number: int) -> Subject:
    """Return a window that was chosen by hand.

    Raises:
        ConfigError: there is no such window, or its requests were removed.
        CorruptData: its record cannot be read.
        StoreError: the store of the requests refused.
    """
    window = _window(life, number)
    requests, _ = life.requests.after(window.begin, window.requests)
    if not len(requests):
        raise ConfigError(f"{life.monitor.requests}: the requests of window {number} were removed")
    text = str(window.verdict["summary"])
    return Subject(
        alert_id(life.record, f"window {number}"), window, text, requests.ids, is_alert=False
    )


def ask_for_inputs(life: Life, subject: Subject) -> None:
    """Ask the service for the inputs of a window, before it forgets them; idempotent.

    Raises:
        StoreError: the store of the requests refused.
    """
    table = life.monitor.explain
    until = time.time() + max(table.patience, 60.0)
    life.requests.ask_for_inputs(subject.id, subject.ids, table.following, until)


def is_explained(life: Life, alert: str) -> bool:
    """Return whether an alert has a complete explanation in MLflow, or is to have none.

    Raises:
        CorruptData: its record cannot be read.
    """
    folder = explanation_folder(life.folder, alert)
    record = read_record(LocalStorage(folder), ExplanationRecord) if folder.exists() else None
    return record is not None and (record.told or record.skipped)


def skip(life: Life, subject: Subject) -> None:
    """Record that an alert is explained by hand only.

    Raises:
        StoreError: the folder cannot be written.
    """
    folder = explanation_folder(life.folder, subject.id)
    make_folders(folder)
    text = "another alert was explained a short time before"
    record = ExplanationRecord(subject.id, subject.window.number, time.time(), text, skipped=True)
    with suppress(KeyTaken):
        write_record(LocalStorage(folder), record, exclusive=True)


def is_cooling(life: Life, subject: Subject) -> bool:
    """Return whether another alert was explained a short time ago."""
    folder = life.folder / "explanations"
    recent = time.time() - life.monitor.explain.cooldown
    others = [one for one in LocalStorage(folder).folders() if one != subject.id]
    records = [read_record(LocalStorage(folder / other), ExplanationRecord) for other in others]
    return any(
        record is not None and not record.skipped and record.time > recent for record in records
    )


def explain(life: Life, subject: Subject) -> Explanation:
    """Explain a window, and show it in MLflow; what is complete is not done again.

    Raises:
        ConfigError: the monitor has no model.
        DriftError: the model could not be loaded, or failed.
        TrackingError: MLflow's database or server refused.
        StoreError: the store refused, or the folder cannot be written.
    """
    folder = explanation_folder(life.folder, subject.id)
    storage = LocalStorage(folder)
    record = read_record(storage, ExplanationRecord)
    if record is None or record.skipped:
        record = _made(life, subject, folder)
    if not record.told:
        record = _told(life, subject, record, folder)
    return Explanation(record, folder / PAGE)


def _made(life: Life, subject: Subject, folder: Path) -> ExplanationRecord:
    monitor = life.monitor
    if monitor.model.build is None:
        raise ConfigError(f"{monitor.path}: model.build: missing; saliency needs the model")
    make_folders(folder)
    ask_for_inputs(life, subject)
    _await_inputs(life, subject)
    following, _ = life.requests.after(subject.window.end, max(monitor.explain.following, 1))
    further = following.ids[: monitor.explain.following]
    verdict = subject.window.verdict
    features = [str(one["text"]) for one in verdict["features"] if one["alarm"]]
    run_with_model(
        _PROCESS,
        monitor,
        {
            "model": asdict(monitor.model),
            "requests": str(monitor.requests),
            "alert": {
                "name": f"{life.record.shown}, window {subject.window.number}",
                "text": subject.text,
                "tone": tone_of(verdict["answer"], verdict["reasons"], alert=subject.is_alert),
                "features": [*verdict["violations"], *features, *verdict["outliers"]],
                "ids": [*subject.ids, *further],
            },
            "explain": asdict(monitor.explain),
            "baseline": str(life.baseline),
            "destination": str(folder),
        },
        "the alert could not be explained",
    )
    text = _figures(folder)["text"]
    record = ExplanationRecord(subject.id, subject.window.number, time.time(), text)
    write_record(LocalStorage(folder), record)
    return record


def _await_inputs(life: Life, subject: Subject) -> None:
    """Wait until the service has written what it has, for a bounded time."""
    deadline = time.monotonic() + life.monitor.explain.patience
    while time.monotonic() < deadline:
        state = life.requests.alert_state(subject.id)
        if state is not None and state.done:
            return
        time.sleep(_LOOK)


def _told(
    life: Life, subject: Subject, record: ExplanationRecord, folder: Path
) -> ExplanationRecord:
    """Show an explanation in MLflow as a run below the monitor's."""
    uri, parent = life.monitor.tracking_uri, life.record.run_id
    name = "alert" if subject.is_alert else "window"
    run_id = record.run_id or create_run(
        uri,
        life.record.experiment_id,
        name=f"{life.record.shown}: {name} at window {record.window}",
        parameters=asdict(life.monitor.explain),
        tags={
            RUN_TAG: subject.id,
            DIRECTORY_TAG: str(folder),
            _PARENT: parent,
            "alert.id": subject.id,
            "alert.window": record.window,
        },
    )
    record = replace(record, run_id=run_id)
    storage = LocalStorage(folder)
    write_record(storage, record)
    figures = _figures(folder)
    shift = figures["shift"] or {}
    tags = {
        "alert.text": subject.text,
        "explanation": record.text,
        "explanation.requests": figures["requests"],
        "explanation.complete": figures["complete"],
        **{f"explanation.{key}": value for key, value in shift.items()},
    }
    files = (PAGE, SHEET, FIGURES)
    artifacts = {file: folder / file for file in files if (folder / file).is_file()}
    finish(uri, run_id, "FINISHED", tags, artifacts)
    set_tags(uri, parent, {"explanation": record.text, "explanation.run_id": run_id})
    record = replace(record, told=True)
    write_record(storage, record)
    return record


def _figures(folder: Path) -> dict[str, Any]:
    try:
        figures = parse_json(LocalStorage(folder).get(FIGURES, 0, _MOST_FIGURES))
    except (StoreError, *DAMAGE) as error:
        raise DriftError(f"{folder}: the explanation cannot be read: {error}") from error
    if not isinstance(figures, dict) or not {"text", "shift", "requests", "complete"} <= {*figures}:
        raise DriftError(f"{folder}/{FIGURES}: not the figures of an explanation")
    return figures


def _window(life: Life, number: int) -> WindowRecord:
    found = read_record(life.storage, WindowRecord, key=window_key(number))
    if found is None:
        raise ConfigError(f"{life.folder}: no window {number}")
    return found
