"""The verdict on a run in a few words, for tables and MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vinedresser.explain.formatting import count
from vinedresser.rules.causes.root_cause import cause_of, root_causes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.status import Status

__all__ = ["attributed", "decisive_finding", "steps_done", "stopping_finding", "verdict"]


def stopping_finding(status: Status, findings: Sequence[Finding]) -> Finding | None:
    """Return the finding for which a run was stopped; None if no rule stopped it.

    Of several findings of the rule, it is the first that is a root cause.
    """
    if not status.rule:
        return None
    found = (one for root in root_causes(findings) for one in root.all)
    return next((finding for finding in found if finding.rule == status.rule), None)


def attributed(status: Status, findings: Sequence[Finding]) -> Status:
    """Return the status of a run, stopped for the root cause of what stopped it.

    The cause may have been found only after the stop was requested, such as at the end.
    """
    stopping = stopping_finding(status, findings) if status.by == "rule" else None
    cause = cause_of(stopping, findings) if stopping is not None else None
    if cause is None or cause.rule == status.rule:
        return status
    return replace(status, rule=cause.rule, reason=cause.seen)


def decisive_finding(status: Status, findings: Sequence[Finding]) -> Finding | None:
    """Return the finding that decides the verdict; None if there is none but "info".

    It is the one for which the run was stopped, or else the first root cause.
    """
    stopping = stopping_finding(status, findings)
    causes = [one.finding for one in root_causes(findings) if one.finding.severity != "info"]
    return stopping or (causes[0] if causes else None)


def steps_done(run: Run, status: Status) -> int:
    """Return the number of optimizer steps that a run has done, as far as is recorded."""
    captured = [steps[-1] for rank in run.ranks if len(steps := run.steps("train", rank))]
    last = [] if status.step is None else [status.step]
    return int(max([*captured, *last], default=-1)) + 1


def verdict(status: Status, findings: Sequence[Finding]) -> str:
    """Return how a run stands and what its rules found, such as "stopped by overfitting".

    Args:
        status: its status (`attributed`).
        findings: its findings.
    """
    words = [status.words]
    stopping = stopping_finding(status, findings)
    causes = [root.finding for root in root_causes(findings) if root.finding is not stopping]
    for severity in ("stop", "warning"):
        rules = list(dict.fromkeys(one.rule for one in causes if one.severity == severity))
        if rules:
            words.append(f"{count(len(rules), severity)}: {', '.join(rules)}")
    return "; ".join(words)
