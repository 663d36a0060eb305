"""Of several findings, which is the root cause and which are its symptoms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vinedresser.rules.faults import brings_about
from vinedresser.store.finding import Finding

__all__ = ["RootCause", "root_causes"]

_SEVERITIES = ("stop", "warning", "info")


class RootCause(NamedTuple):
    """A finding, and those that it explains.

    Attributes:
        finding: the cause.
        symptoms: what it can have brought about, in the order in which it was found.
    """

    finding: Finding
    symptoms: tuple[Finding, ...]


def root_causes(findings: Sequence[Finding]) -> list[RootCause]:
    """Return the root causes among the findings of a run, each with those that it explains.

    A finding explains another when its fault can bring about the other's
    (`vinedresser.rules.faults`), or is the same and the other is not graver. The one that explains
    the most is a root cause, the earliest of several; then the same is asked of what is left.
    "info" explains nothing.

    Args:
        findings: of one run, in any order.

    Returns:
        Root causes, the gravest first: by severity (that of the gravest symptom counts), then by
        how many findings they explain, how sure they are, and the step.
    """
    left = sorted(findings, key=lambda finding: (finding.since, finding.step))
    found = []
    while left:
        # The first of several that explain as many.
        root = max(left, key=lambda one: len(_explained(one, left)))
        symptoms = _explained(root, left)
        found.append(RootCause(root, tuple(symptoms)))
        left = [one for one in left if one is not root and one not in symptoms]
    return sorted(found, key=_rank)


def _explained(cause: Finding, findings: Sequence[Finding]) -> list[Finding]:
    if cause.severity == "info":
        return []
    return [
        one
        for one in findings
        if one is not cause and (brings_about(cause.fault, one.fault) or _repeats(one, cause))
    ]


def _repeats(finding: Finding, cause: Finding) -> bool:
    """Say whether a finding is of the same fault as another, and not graver."""
    graver = _SEVERITIES.index(finding.severity) < _SEVERITIES.index(cause.severity)
    return bool(cause.fault) and finding.fault == cause.fault and not graver


def _rank(root: RootCause) -> tuple[int, int, float, int]:
    gravest = min(_SEVERITIES.index(one.severity) for one in (root.finding, *root.symptoms))
    return (gravest, -len(root.symptoms), -root.finding.confidence, root.finding.step)
