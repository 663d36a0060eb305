"""The MLflow run of a run: found or created, and the tags that describe it."""

from __future__ import annotations

import os
import re
import time

from vinedresser.errors import TrackingError
from vinedresser.infra.tracking import RUN_TAG, create_run, set_tags
from vinedresser.plain_text import visible
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import (
    ExitRecord,
    RemedyRecord,
    RunRecord,
    TagsRecord,
    TrackingRecord,
    lost_records,
    read_record,
)
from vinedresser.store.storage import Location, Storage

__all__ = ["RuleTags", "end_tags", "find_or_create"]

# MLflow's own tag: its table nests a run under the run that this names.
_PARENT_TAG = "mlflow.parentRunId"
# Seconds between two updates of the tags of a run that trains.
_EVERY = 5.0


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
        "vinedresser.directory": str(location),
        "mlflow.source.name": " ".join(run.command),
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


def end_tags(run: Run, end: ExitRecord) -> dict[str, object]:
    """Return the tags by which runs that are over are filtered in MLflow's table."""
    stop = end.stop
    findings = run.findings()
    return {
        "exit.cause": end.cause,
        "exit.reason": end.reason,
        "steps": 0 if end.last_step is None else end.last_step + 1,
        "records.lost": lost_records(run.storage) or None,
        "steps.saved": run.status.steps_saved(run.info.total_steps),
        "stop.by": stop.by if stop else None,
        "stop.rule": (stop.rule or None) if stop else None,
        "stop.step": stop.step if stop else None,
        "stop.reason": stop.reason if stop else None,
        "findings": ", ".join(dict.fromkeys(found.rule for found in findings)) or None,
        "mlflow.note.content": "\n\n".join(map(_note, findings)) or None,
        **_rule_tags(run.storage),
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


def _rule_tags(storage: Storage) -> dict[str, str]:
    """Return the tags of a run by their names in MLflow.

    Raises:
        CorruptData: a record of tags cannot be read.
        StoreError: the storage refused a request.
    """
    found: dict[str, str] = {}
    for key in storage.list(f"{TagsRecord.KEY}/"):
        if not key.endswith(".json"):
            continue
        record = read_record(storage, TagsRecord, key=key)
        found |= record.tags if record else {}
    return {f"vinedresser.tag.{rule}": text for rule, text in found.items()}


class RuleTags:
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
            CorruptData: a record of tags cannot be read.
            StoreError: the storage refused a request.
        """
        now = time.monotonic()
        if now < self._updated + _EVERY:
            return
        self._updated = now
        tags = _rule_tags(self._storage)
        if tags == self._sent:
            return
        try:
            set_tags(self._uri, self._run_id, tags)
        except TrackingError:
            # Retried with the next update; the sink reports that the server is unavailable.
            return
        self._sent = tags
