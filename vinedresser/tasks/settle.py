"""The end of a run that is over: its report, and its status in MLflow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vinedresser.capture.finding import Finding
from vinedresser.capture.store.reader import Run, open_run
from vinedresser.explain.report import write_report
from vinedresser.infra.launcher import settle
from vinedresser.infra.run_directory import (
    ExitCause,
    ExitRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.infra.storage import LocalStorage
from vinedresser.infra.tracking import RunStatus, finish
from vinedresser.tasks.prepare import find_or_create

__all__ = ["MLFLOW_STATUS", "REPORT", "settle_run"]

REPORT = "report.html"

# How the four causes of an end are called in MLflow. It has no word for "stopped by a rule": that
# is KILLED with the tags stop.rule, stop.step and stop.reason.
MLFLOW_STATUS: dict[ExitCause, RunStatus] = {
    "finished": "FINISHED",
    "stopped": "KILLED",
    "crashed": "FAILED",
    "killed": "KILLED",
}


def settle_run(directory: Path) -> ExitRecord:
    """Write the report of a run that is over and give its MLflow run its final status.

    It may be called again, by anyone, after any crash in between.

    Raises:
        StillRunning: the run has not ended.
        TrackingError: MLflow's database or server refused, or is away.
        StoreError: the store refused.
    """
    end = settle(directory)
    storage = LocalStorage(directory)
    run = open_run(directory)
    report = write_report(run, directory / REPORT)
    tracking = read_record(storage, TrackingRecord)
    if tracking is None or tracking.settled:
        return end
    run_id = tracking.run_id or find_or_create(tracking, directory, run.info)
    artifacts = {REPORT: report}
    artifacts |= {f"findings/{path.name}": path for path in directory.glob("findings/*.jsonl")}
    finish(
        tracking.uri,
        run_id,
        MLFLOW_STATUS[end.cause],
        tags=_tags(run, end),
        artifacts=artifacts,
        ended=end.ended,
    )
    write_record(storage, replace(tracking, run_id=run_id, settled=True))
    return end


def _tags(run: Run, end: ExitRecord) -> dict[str, object]:
    """Return the tags by which runs are told apart and filtered in MLflow's table."""
    steps = 0 if end.last_step is None else end.last_step + 1
    stop = end.stop or {}
    findings = run.findings()
    total = run.info.total_steps
    return {
        "exit.cause": end.cause,
        "exit.reason": end.reason,
        "steps": steps,
        "steps.saved": max(total - steps, 0) if total is not None and stop else None,
        "stop.by": stop.get("by"),
        "stop.rule": stop.get("rule") or None,
        "stop.step": stop.get("step"),
        "stop.reason": stop.get("reason"),
        "findings": ", ".join(dict.fromkeys(found.rule for found in findings)) or None,
        "mlflow.note.content": "\n\n".join(map(_note, findings)) or None,
    }


def _note(finding: Finding) -> str:
    """Return a finding as a paragraph of Markdown, for the head of MLflow's page of the run."""
    return (
        f"**{finding.rule}** at step {finding.step}: {finding.seen}  \n"
        f"Likely cause: {finding.cause}  \nTry: {finding.remedy}"
    )
