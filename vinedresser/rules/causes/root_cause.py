"""Separate the root causes among findings from their symptoms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vinedresser.rules.faults import brings_about
from vinedresser.store.finding import Finding

__all__ = ["RootCause", "cause_of", "onset", "root_causes"]

_SEVERITIES = ("stop", "warning", "info")


class RootCause(NamedTuple):
    """A finding, and the findings that it explains.

    Attributes:
        finding: root cause.
        symptoms: findings that it can have caused, in the order in which they were made.
    """

    finding: Finding
    symptoms: tuple[Finding, ...]


def root_causes(findings: Sequence[Finding]) -> list[RootCause]:
    """Return the root causes among the findings of a run, each with its symptoms.

    A finding explains another if its fault can cause the other's (`vinedresser.rules.faults`), or
    is the same and the other is not more severe. Findings of severity "info" explain nothing. The
    finding that explains the most is a root cause (the earliest if several do); it and its symptoms
    are set aside, and the search repeats with the rest.

    Args:
        findings: findings of one run, in any order.

    Returns:
        Root causes, the most severe first: by the highest severity including symptoms, then by
        number of symptoms, confidence and step.
    """
    left = sorted(findings, key=lambda finding: (finding.since, finding.step))
    found = []
    while left:
        # `max` returns the first of several that explain as many.
        root = max(left, key=lambda one: len(_explained(one, left)))
        symptoms = _explained(root, left)
        found.append(RootCause(root, tuple(symptoms)))
        left = [one for one in left if one is not root and one not in symptoms]
    return sorted(found, key=_rank)


def cause_of(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """Return the root cause of a finding; the finding itself if there is no other.

    Args:
        finding: one of the findings.
        findings: findings of one run.
    """
    roots = root_causes(findings)
    return next(root.finding for root in roots if finding in (root.finding, *root.symptoms))


def onset(finding: Finding, findings: Sequence[Finding]) -> int:
    """Return the first step with a sign of a fault: of a root cause, or of one of its symptoms.

    A cause that takes many steps to recognise was there before its symptoms.

    Args:
        finding: one of the findings.
        findings: findings of one run.
    """
    roots = root_causes(findings)
    symptoms = next((root.symptoms for root in roots if root.finding is finding), ())
    return min(one.since for one in (finding, *symptoms))


def _explained(cause: Finding, findings: Sequence[Finding]) -> list[Finding]:
    if cause.severity == "info":
        return []
    return [
        one
        for one in findings
        if one is not cause and (brings_about(cause.fault, one.fault) or _repeats(one, cause))
    ]


def _repeats(finding: Finding, cause: Finding) -> bool:
    """Return whether a finding reports the same fault as another, and is not more severe."""
    graver = _SEVERITIES.index(finding.severity) < _SEVERITIES.index(cause.severity)
    return bool(cause.fault) and finding.fault == cause.fault and not graver


def _rank(root: RootCause) -> tuple[int, int, float, int]:
    gravest = min(_SEVERITIES.index(one.severity) for one in (root.finding, *root.symptoms))
    return (gravest, -len(root.symptoms), -root.finding.confidence, root.finding.step)
