"""The finding for which a run was stopped, or would have been if it had trained longer."""

from __future__ import annotations

from collections.abc import Sequence

from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.causes.root_cause import cause_of, root_causes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import ExitRecord, read_record
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["is_same", "late_finding", "runs_of", "stopping_finding"]


def runs_of(place: RunPlace) -> list[Run]:
    """Return a run, and the additional runs of its script that were not removed.

    Raises:
        VinedresserError: one of them cannot be read.
    """
    places = [place, *(one for one in place.additional if not one.removed)]
    return [open_run(one.location) for one in places]


def stopping_finding(runs: Sequence[Run]) -> Finding | None:
    """Return the finding for which a rule stopped a run, or its cause if only that has a cure.

    Rules may find the cause after the symptom.

    Args:
        runs: the run, and the additional runs of its script.

    Returns:
        None if no rule stopped it.

    Raises:
        VinedresserError: a run cannot be read.
    """
    status = runs[0].status
    if status.state != "stopped" or status.by != "rule":
        return None
    end = read_record(runs[0].storage, ExitRecord)
    assert end is not None, "the status is its"
    assert end.stop is not None, "it was stopped"
    assert end.stop.finding is not None, "a rule stopped it"
    finding = Finding.from_json(end.stop.finding)
    return finding if finding.correction else _with_cure(finding, runs)


def late_finding(runs: Sequence[Run], plan: ActionPlan) -> Finding | None:
    """Return the first finding that stops a run, though the training was over when it was made.

    It depends on how fast the rules are whether such a finding stops a short training.

    Args:
        runs: a run that is over, and the additional runs of its script.
        plan: actions that follow findings.

    Returns:
        The root cause, or another one that has a cure; None if no finding stops the run.

    Raises:
        StoreError: a run cannot be read.
    """
    for run in runs:
        findings = run.findings()
        fatal = next((one for one in findings if "stop" in plan.of(one)), None)
        if fatal is not None:
            finding = cause_of(fatal, findings)
            return finding if finding.correction else _with_cure(finding, [run])
    return None


def is_same(one: Finding, other: Finding) -> bool:
    """Return whether two findings are the same; their numbers may be NaN, which equals nothing."""
    return (one.rule, one.step, one.rank, one.mode, one.tensor) == (
        other.rule,
        other.step,
        other.rank,
        other.mode,
        other.tensor,
    )


def _with_cure(finding: Finding, runs: Sequence[Run]) -> Finding:
    """Return the root cause of a finding if that has a cure; else the finding."""
    for run in runs:
        for root in root_causes(run.findings()):
            if root.finding.correction and any(is_same(finding, one) for one in root.all[1:]):
                return root.finding
    return finding
