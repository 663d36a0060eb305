"""The end of a run that is over: its report, and its status in MLflow."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vinedresser.errors import StillRunning
from vinedresser.explain.reports.report import write_report
from vinedresser.infra.launcher import settle
from vinedresser.infra.tracking import RunStatus, finish
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    ExitCause,
    ExitRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.store.storage import Location, open_storage
from vinedresser.tasks.lifecycle.prepare import find_or_create
from vinedresser.tasks.lifecycle.tagging import rule_tags

__all__ = ["MLFLOW_STATUS", "REPORT", "end_of_run", "settle_run"]

REPORT = "report.html"

# How the four causes of an end are called in MLflow. It has no word for "stopped by a rule": that
# is KILLED with the tags stop.rule, stop.step and stop.reason.
MLFLOW_STATUS: dict[ExitCause, RunStatus] = {
    "finished": "FINISHED",
    "stopped": "KILLED",
    "crashed": "FAILED",
    "killed": "KILLED",
}


def end_of_run(location: Location) -> ExitRecord:
    """Return how a run ended; in a directory, one whose processes are gone ends here.

    Args:
        location: of the run. On an object store its spool says when it ends, wherever that is.

    Raises:
        StillRunning: the run has not ended, or not all of it is in its store.
        NotARun: there is no run.
        StoreError: the store refused.
    """
    if isinstance(location, Path):
        return settle(location)
    end = read_record(open_storage(location), ExitRecord)
    if end is None:
        raise StillRunning(f"{location}: has not ended, or its end waits to be uploaded")
    return end


def settle_run(location: Location) -> ExitRecord:
    """Write the report of a run that is over and give its MLflow run its final status.

    It may be called again, by anyone, after any crash in between.

    Args:
        location: of the run.

    Raises:
        StillRunning: the run has not ended.
        TrackingError: MLflow's database or server refused, or is away.
        StoreError: the store refused.
    """
    end = end_of_run(location)
    run = open_run(location)
    with _artifacts(run, location) as artifacts:
        tracking = read_record(run.storage, TrackingRecord)
        if tracking is None or tracking.settled:
            return end
        run_id = tracking.run_id or find_or_create(tracking, location, run.info)
        finish(
            tracking.uri,
            run_id,
            MLFLOW_STATUS[end.cause],
            tags=_tags(run, end),
            artifacts=artifacts,
            ended=end.ended,
        )
    write_record(run.storage, replace(tracking, run_id=run_id, settled=True))
    return end


@contextmanager
def _artifacts(run: Run, location: Location) -> Iterator[dict[str, Path]]:
    """Write the report where it belongs, and yield files with it, the findings and the actions."""
    folders = ("findings/", "actions/")
    findings = [key for one in folders for key in run.storage.list(one) if key.endswith(".jsonl")]
    if isinstance(location, Path):
        write_report(run, location / REPORT)
        yield {key: location / key for key in (REPORT, *findings)}
        return
    with tempfile.TemporaryDirectory() as folder:
        copies = {key: Path(folder, key) for key in (REPORT, *findings)}
        write_report(run, copies[REPORT])
        run.storage.put(REPORT, [copies[REPORT].read_bytes()])
        for key in findings:
            copies[key].parent.mkdir(exist_ok=True)
            copies[key].write_bytes(run.storage.get(key))
        yield copies


def _tags(run: Run, end: ExitRecord) -> dict[str, object]:
    """Return the tags by which runs are told apart and filtered in MLflow's table."""
    steps = 0 if end.last_step is None else end.last_step + 1
    stop = end.stop
    findings = run.findings()
    total = run.info.total_steps
    return {
        "exit.cause": end.cause,
        "exit.reason": end.reason,
        "steps": steps,
        "steps.saved": max(total - steps, 0) if total is not None and stop else None,
        "stop.by": stop.by if stop else None,
        "stop.rule": (stop.rule or None) if stop else None,
        "stop.step": stop.step if stop else None,
        "stop.reason": stop.reason if stop else None,
        "findings": ", ".join(dict.fromkeys(found.rule for found in findings)) or None,
        "mlflow.note.content": "\n\n".join(map(_note, findings)) or None,
        **rule_tags(run.storage),
    }


def _note(finding: Finding) -> str:
    """Return a finding as a paragraph of Markdown, for the head of MLflow's page of the run."""
    return (
        f"**{finding.rule}** at step {finding.step}: {finding.seen}  \n"
        f"Likely cause: {finding.cause}  \nTry: {finding.remedy}"
    )
