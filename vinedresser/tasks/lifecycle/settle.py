"""Settle a run that is over: its report, and its status in MLflow."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vinedresser.errors import StillRunning
from vinedresser.explain.reports.report import write_report
from vinedresser.infra.catalog.run_notes import mark_settled, tracking_or_note
from vinedresser.infra.services.tracking import NOTE_TAG, RunStatus, finish, set_tags, tags_of
from vinedresser.infra.services.tracking.artifacts import upload
from vinedresser.infra.supervise.launcher import end_without_record, settle
from vinedresser.masking import masked_text
from vinedresser.objects import LocalStorage, Location, open_storage
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.findings import files, group_files
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    CHANGES_KEY,
    EXPERIMENT_KEY,
    LOG_KEY,
    ExitCause,
    ExitRecord,
    MachineRecord,
    TrackingRecord,
)
from vinedresser.store.status import run_status
from vinedresser.tasks.lifecycle.end_tags import end_tags, proof_tags
from vinedresser.tasks.lifecycle.metric_points import control_points, rule_points
from vinedresser.tasks.lifecycle.mlflow_metrics import send_metrics
from vinedresser.tasks.lifecycle.mlflow_run import end_removed, find_or_create
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["REPORT", "end_of_run", "mlflow_status", "renew_report", "settle_place", "settle_run"]

REPORT = "report.html"

# Bytes of the end of a run's log that MLflow gets.
_LOG_BYTES = 1 << 20
# MLflow has no status for "stopped by a rule": that is KILLED with the tags stop.rule, stop.step
# and stop.reason.
_STATUS: dict[ExitCause, RunStatus] = {
    "finished": "FINISHED",
    "stopped": "KILLED",
    "crashed": "FAILED",
    "killed": "KILLED",
}


def settle_place(place: RunPlace) -> None:
    """Bring a run and the additional runs of its script to their store; settle those that arrive.

    Of a run whose directory was removed, MLflow is told the end.

    Raises:
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the store refused a request.
    """
    place.complete()
    for one in (place, *place.additional):
        if one.removed and one.tracking is not None:
            end_removed(one.location, one.tracking)
    for one in place.arrived:
        if one.removed:
            continue
        if not one.recorded:
            # The store or MLflow was unavailable for longer than a recorder waits.
            send_metrics(one.location)
        settle_run(one.location)


def end_of_run(location: Location) -> ExitRecord:
    """Return how a run ended; in a directory, end a run whose processes are gone.

    Of a run whose exit record is damaged, the end is what else is known.

    Args:
        location: location of the run. For one on an object store its spool decides when it ends.

    Raises:
        StillRunning: the run has not ended or is not complete in its store.
        NotARun: there is no run.
        StoreError: the store refused a request.
    """
    if isinstance(location, Path):
        return settle(location)
    storage = open_storage(location)
    faults: list[str] = []
    end = read_record_or_none(storage, ExitRecord, ExitRecord.KEY, faults)
    if end is not None:
        return end
    if faults and run_status(storage).over:
        return end_without_record(storage, faults[0])
    raise StillRunning(f"{location}: has not ended, or its end waits to be uploaded")


def settle_run(location: Location) -> ExitRecord:
    """Write the report of a run that is over and give its MLflow run the final status.

    Any process may call it again, after any crash.

    Raises:
        StillRunning: the run has not ended.
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the store refused a request.
    """
    end = end_of_run(location)
    run = open_run(location)
    faults: list[str] = []
    read_record_or_none(run.storage, TrackingRecord, TrackingRecord.KEY, faults)
    with _artifacts(run, faults) as artifacts:
        tracking = tracking_or_note(location, run.storage)
        if tracking is None or tracking.settled:
            return end
        run_id = tracking.run_id or find_or_create(tracking, location, run.info)
        finish(
            tracking.uri,
            run_id,
            mlflow_status(end),
            tags=end_tags(run, end, faults, replace(tracking, run_id=run_id)),
            artifacts=artifacts,
            metrics=rule_points(run.findings()) | control_points(run.controls()),
            ended=end.ended,
        )
    mark_settled(location, replace(tracking, run_id=run_id))
    return end


def mlflow_status(end: ExitRecord) -> RunStatus:
    """Return the status in MLflow of a run that is over.

    A trial that its sweep pruned is finished: nothing was wrong with it.
    """
    pruned = end.stop is not None and end.stop.by == "sweep" and not end.stop.rule
    return "FINISHED" if pruned else _STATUS[end.cause]


def renew_report(location: Location) -> None:
    """Write the report of a run that is over again, also to MLflow if that has the run.

    What was proved meanwhile is in its tags and its description, too.

    Raises:
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the store refused a request.
    """
    run = open_run(location)
    with _artifacts(run, []) as artifacts:
        tracking = tracking_or_note(location, run.storage)
        if tracking is None or not tracking.run_id:
            return
        upload(tracking.uri, tracking.run_id, {REPORT: artifacts[REPORT]})
    end = read_record_or_none(run.storage, ExitRecord, ExitRecord.KEY, [])
    if end is not None:
        note = tags_of(tracking.uri, tracking.run_id).get(NOTE_TAG, "")
        set_tags(tracking.uri, tracking.run_id, proof_tags(run, end, tracking, note))


@contextmanager
def _artifacts(run: Run, faults: list[str]) -> Iterator[dict[str, Path]]:
    """Write the report to the run; yield copies of what MLflow keeps of the run.

    These are the report, findings, actions, machine, experiment file, changes of the code and end
    of the log.

    Copies: MLflow's client would follow a link in the run, which may lead anywhere.

    Args:
        faults: receives a sentence for each of them that is not a file.
    """
    readable = {
        **group_files(run.storage, "findings", faults),
        **group_files(run.storage, "actions", faults),
        **files(run.storage, (MachineRecord.KEY, EXPERIMENT_KEY, CHANGES_KEY, LOG_KEY), faults),
    }
    if LOG_KEY in readable:
        end = readable[LOG_KEY][-_LOG_BYTES:].decode(errors="replace")
        readable[LOG_KEY] = masked_text(end).encode()
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as folder:
        copies = LocalStorage(folder)
        write_report(run, Path(folder, REPORT))
        run.storage.put(REPORT, [copies.get(REPORT)])
        for key, content in readable.items():
            copies.put(key, [content])
        yield {key: Path(folder, key) for key in (REPORT, *readable)}
