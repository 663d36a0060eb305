"""The tags by which MLflow shows an attempt under the run whose place it takes, and why it is."""

from __future__ import annotations

from vinedresser.store.records import RemedyRecord, RunRecord

__all__ = ["PARENT_TAG", "remedy_tags"]

# MLflow's own: by it the table of runs nests one under another.
PARENT_TAG = "mlflow.parentRunId"


def remedy_tags(run: RunRecord) -> dict[str, str]:
    """Return what is different in a run that takes a stopped one's place, and why; {} of others."""
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
