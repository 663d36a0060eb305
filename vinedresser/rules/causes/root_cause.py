"""Separate the root causes among findings from their symptoms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from vinedresser.rules.causes.chain import brings_about, can_explain, causal_place
from vinedresser.store.finding import HOPELESS, Finding

__all__ = ["RootCause", "cause_of", "onset", "remedies", "root_causes"]

_SEVERITIES = ("stop", "warning", "info")
# What several rules propose to change, in the words of their remedies.
_KNOBS = ("learning rate", "weight decay", "batch size", "momentum", "initialis", "activation")
_RATE = re.compile(r"\blr\b|learning_rate")


class RootCause(NamedTuple):
    """A finding, and the findings that it explains.

    Attributes:
        symptoms: findings of other rules that it can have caused, in the order in which they were
            made.
        repeats: other findings of its rule that it explains, such as an earlier warning.
    """

    finding: Finding
    symptoms: tuple[Finding, ...]
    repeats: tuple[Finding, ...] = ()

    @property
    def all(self) -> tuple[Finding, ...]:
        """The root cause and all that it explains."""
        return (self.finding, *self.repeats, *self.symptoms)


def root_causes(findings: Sequence[Finding]) -> list[RootCause]:
    """Return the root causes among the findings of a run, each with its symptoms.

    A finding explains another if its fault can cause the other's (`Rule.consequences`), or
    is the same, and it was found by the rule of that name or is at least as severe. Findings of
    severity "info" explain nothing. A root cause is a finding that no other explains, whatever its
    severity: one with which nothing can be learned, else the one that explains the most, or of
    several the first in causal order (`causal_place`), then the earliest. It and its symptoms are
    set aside, and the search repeats with the rest.

    Args:
        findings: findings of one run, in any order.

    Returns:
        Root causes: those of a stop first, then those of a warning, also if a symptom has that
        severity; among these those with which nothing can be learned, then by number of symptoms,
        causal order, confidence and step.
    """
    left = sorted(findings, key=lambda finding: (finding.since, finding.step))
    found = []
    while left:
        # `min` returns the first of several that are equal.
        root = min(left, key=lambda one: _precedence(one, left))
        explained = _explained(root, left)
        repeats = tuple(one for one in explained if one.rule == root.rule)
        symptoms = tuple(one for one in explained if one.rule != root.rule)
        found.append(RootCause(root, symptoms, repeats))
        left = [one for one in left if one is not root and one not in explained]
    return sorted(found, key=_rank)


def cause_of(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """Return the root cause of a finding; the finding itself if there is no other.

    Args:
        finding: one of the findings.
    """
    roots = root_causes(findings)
    return next(root.finding for root in roots if finding in root.all)


def onset(finding: Finding, findings: Sequence[Finding]) -> int:
    """Return the first step with a sign of a fault: of a root cause, or of one of its symptoms.

    A cause that takes many steps to recognise was there before its symptoms.

    Args:
        finding: one of the findings.
    """
    roots = root_causes(findings)
    explained = next((root.all for root in roots if root.finding is finding), (finding,))
    return min(one.since for one in explained)


def remedies(roots: Sequence[RootCause]) -> list[str]:
    """Return what to change for each root cause, so that no two change the same thing.

    A later one that would is to wait for the first: its finding may have been made for that reason.
    Symptoms need no remedy of their own: they go with their cause.

    Args:
        roots: root causes of one run, as `root_causes` returns them.
    """
    found: list[str] = []
    changed: dict[str, str] = {}
    for root in roots:
        text, rule = root.finding.remedy, root.finding.rule
        knobs = _knobs(root.finding)
        shared = next((knob for knob in knobs if knob in changed), None)
        if shared is not None and text:
            text = f"follow the advice of {changed[shared]} first, then train again"
        else:
            changed |= dict.fromkeys(knobs, rule)
        found.append(text)
    return found


def _knobs(finding: Finding) -> list[str]:
    """Return what a finding's remedy changes."""
    text = _RATE.sub("learning rate", finding.remedy)
    return [*(knob for knob in _KNOBS if knob in text), *finding.correction]


def _precedence(finding: Finding, findings: Sequence[Finding]) -> tuple[bool, bool, int, int]:
    """Return a key by which the first of some findings is a root cause."""
    explained = any(
        _explains(one, finding) and not _explains(finding, one)
        for one in findings
        if one is not finding
    )
    effects = len(_explained(finding, findings))
    return explained, not _is_hopeless(finding), -effects, causal_place(finding.fault)


def _is_hopeless(finding: Finding) -> bool:
    return finding.evidence.get(HOPELESS) is True


def _explained(cause: Finding, findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding is not cause and _explains(cause, finding)]


def _explains(cause: Finding, finding: Finding) -> bool:
    if cause.severity == "info" or not can_explain(cause, finding):
        return False
    return brings_about(cause.fault, finding.fault) or _repeats(finding, cause)


def _repeats(finding: Finding, cause: Finding) -> bool:
    """Return whether a finding reports the same fault as another, and is not more severe.

    The rule that is named for the fault explains others whatever their severity, but for those with
    an earlier sign of it.
    """
    if not cause.fault or finding.fault != cause.fault:
        return False
    named = cause if cause.rule == cause.fault else finding
    other = finding if named is cause else cause
    if (other.rule == other.fault) != (named.rule == named.fault) and named.since <= other.since:
        return named is cause
    return _SEVERITIES.index(finding.severity) >= _SEVERITIES.index(cause.severity)


def _rank(root: RootCause) -> tuple[int, bool, int, int, float, int]:
    gravest = min(_SEVERITIES.index(one.severity) for one in root.all)
    finding = root.finding
    place = causal_place(finding.fault)
    return (
        *(gravest, not _is_hopeless(finding), -len(root.symptoms)),
        *(place, -finding.confidence, finding.step),
    )
