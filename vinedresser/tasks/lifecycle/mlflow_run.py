"""The MLflow run of a run: found or created, its tags and its metrics."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

from vinedresser.errors import TrackingError
from vinedresser.infra.tracking import (
    DIRECTORY_TAG,
    RUN_TAG,
    MetricNames,
    MetricSink,
    create_run,
    set_tags,
    thin,
)
from vinedresser.masking import masked_arguments
from vinedresser.plain_text import visible
from vinedresser.store.finding import Finding
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    ExitRecord,
    RemedyRecord,
    RunRecord,
    TagsRecord,
    TrackingRecord,
    known_keys,
    lost_records,
)
from vinedresser.store.storage import LocalStorage, Location, Storage
from vinedresser.tasks.lifecycle.run_notes import tracking_or_note
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.retry_outages import retry_outages

__all__ = ["end_tags", "find_or_create", "record_metrics", "send_metrics"]

# MLflow's own tag: its table nests a run under the run that this names.
_PARENT_TAG = "mlflow.parentRunId"
# Seconds between two updates of the tags of a run that trains.
_EVERY = 5.0
# Seconds that MLflow has to accept the remaining metrics once the run is over.
_LAST_CALL = 60.0


def find_or_create(
    tracking: TrackingRecord, location: Location, run: RunRecord, *, new: bool = False
) -> str:
    """Return the id of a run's MLflow run; create the MLflow run unless it exists.

    Args:
        tracking: where MLflow keeps the run.
        location: location of the run.
        run: the run's record.
        new: the MLflow run cannot exist yet.

    Raises:
        TrackingError: MLflow's database or server refused or is unavailable.
    """
    tags = {
        RUN_TAG: run.id,
        DIRECTORY_TAG: str(location),
        "mlflow.source.name": " ".join(masked_arguments(run.command)),
        **_remedy_tags(run),
    }
    # In a container the user id may have no name.
    if user := os.environ.get("LOGNAME") or os.environ.get("USER"):
        tags["mlflow.user"] = user
    if tracking.parent:
        tags[_PARENT_TAG] = tracking.parent
    if run.flow:
        tags["prefect.flow_run"] = run.flow
    return create_run(
        tracking.uri,
        tracking.experiment_id,
        name=run.name,
        parameters=run.parameters,
        tags=tags,
        started=run.created,
        new=new,
    )


def end_tags(run: Run, end: ExitRecord, faults: Sequence[str] = ()) -> dict[str, object]:
    """Return the tags by which runs that are over are filtered in MLflow's table.

    Args:
        run: the run.
        end: how it ended.
        faults: sentences about its damaged files that are known already.

    Raises:
        StoreError: the storage refused.
    """
    stop = end.stop
    status = run.status
    findings = run.findings()
    damaged = [*faults]
    rule_tags = _rule_tags(run.storage, damaged)
    return {
        "exit.cause": end.cause,
        "exit.reason": end.reason,
        "steps": 0 if end.last_step is None else end.last_step + 1,
        "records.lost": lost_records(run.storage) or None,
        "steps.saved": status.steps_saved(run.info.total_steps),
        "stop.by": stop.by if stop else None,
        "stop.rule": (stop.rule or None) if stop else None,
        "stop.step": stop.step if stop else None,
        "stop.reason": stop.reason if stop else None,
        "findings": ", ".join(dict.fromkeys(found.rule for found in findings)) or None,
        "mlflow.note.content": "\n\n".join(map(_note, findings)) or None,
        "problems": "\n".join(dict.fromkeys((*damaged, *run.damage(status)))) or None,
        **rule_tags,
    }


def _remedy_tags(run: RunRecord) -> dict[str, str]:
    """Return how an attempt differs from the stopped run that it replaces; {} for other runs."""
    if not run.remedy:
        return {}
    remedy = RemedyRecord.from_json(run.remedy)
    return {
        "remedy.of": remedy.first,
        "remedy.attempt": str(remedy.attempt),
        "remedy.stopped": remedy.stopped,
        "remedy.rule": remedy.finding["rule"],
        "remedy.reason": remedy.finding["seen"],
        "remedy.changed": remedy.change,
        "remedy.begins": remedy.beginning,
    }


def _note(finding: Finding) -> str:
    """Return a finding as a paragraph of Markdown for the head of MLflow's page."""
    return (
        f"**{_literal(finding.rule)}** at step {finding.step}: {_literal(finding.seen)}  \n"
        f"Likely cause: {_literal(finding.cause)}  \nTry: {_literal(finding.remedy)}"
    )


def _literal(text: str) -> str:
    """Return text of a run, such as the name of a tensor, so that Markdown shows it unchanged."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", visible(text))


def _rule_tags(storage: Storage, faults: list[str]) -> dict[str, str]:
    """Return the tags of a run by their names in MLflow.

    Args:
        storage: the run's storage.
        faults: receives a sentence for each damaged record.

    Raises:
        StoreError: the storage refused a request.
    """
    found: dict[str, str] = {}
    for key in known_keys(storage, TagsRecord.KEY, faults):
        record = read_record_or_none(storage, TagsRecord, key, faults)
        found |= record.tags if record else {}
    return {f"vinedresser.tag.{rule}": text for rule, text in found.items()}


class _RuleTags:
    """Sends the tags of a run while it trains; settling the run sends them again.

    Args:
        storage: storage of the run.
        uri: tracking URI.
        run_id: id of the MLflow run.
    """

    def __init__(self, storage: Storage, uri: str, run_id: str) -> None:
        self._storage = storage
        self._uri = uri
        self._run_id = run_id
        self._sent: dict[str, str] = {}
        self._updated = -float("inf")

    def update(self) -> None:
        """Send changed tags, at most every five seconds.

        Raises:
            StoreError: the storage refused a request.
        """
        now = time.monotonic()
        if now < self._updated + _EVERY:
            return
        self._updated = now
        # Damage is named once, when the run is settled.
        tags = _rule_tags(self._storage, [])
        if tags == self._sent:
            return
        try:
            set_tags(self._uri, self._run_id, tags)
        except TrackingError:
            # Retried with the next update; the sink reports that the server is unavailable.
            return
        self._sent = tags


def record_metrics(place: RunPlace) -> None:
    """Follow a run to its end, send its metrics, and mark the place as recorded.

    Raises:
        TrackingError: see `send_metrics`.
        StoreError: see `send_metrics`.
    """
    # On an object store the record may not have arrived yet.
    tracking = tracking_or_note(place.location, LocalStorage(place.directory))
    if place.appear():
        send_metrics(place.location, tracking)
        place.recorded = True


def send_metrics(location: Location, tracking: TrackingRecord | None = None) -> None:
    """Follow a run to its end and send its losses, metrics and tags; repeating this is harmless.

    Train steps are thinned out (`thin`); every evaluation is sent.

    Args:
        location: location of the run.
        tracking: its MLflow run; None: read from the run.

    Raises:
        TrackingError: MLflow did not accept them, even some time after the end of the run; they
            remain in the run directory, and `reconcile` sends them.
        StoreError: the run could not be read for some minutes.
    """
    retry_outages(lambda: _send(location, tracking), location)


def _send(location: Location, tracking: TrackingRecord | None) -> None:
    """Send them once, from the first step on."""
    run = open_run(location)
    tracking = tracking or tracking_or_note(location, run.storage)
    if tracking is None:
        return
    run_id = tracking.run_id or find_or_create(tracking, location, run.info)
    names = MetricNames()
    sink = MetricSink(tracking.uri, run_id)
    tags = _RuleTags(run.storage, tracking.uri, run_id)
    try:
        for step in run.follow():
            tags.update()
            if step.mode == "train" and not thin(step.step):
                continue
            for name, value in {**step.scalars_of("losses"), **step.scalars_of("metrics")}.items():
                key = names.key(name, step.mode)
                if key is not None:
                    sink.log(key, value, step=step.step, time=step.time)
    finally:
        complete = sink.close(_LAST_CALL)
    if not complete:
        raise TrackingError(
            f"{tracking.uri}: {sink.waiting + sink.lost} metrics of {run.info.name} not accepted; "
            "`vinedresser reconcile` sends them again"
        )
