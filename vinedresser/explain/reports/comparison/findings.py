"""Findings of several runs side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.comparison.comparing import Comparison
from vinedresser.store.finding import Finding, Severity

__all__ = ["Cell", "RuleRow", "numbered", "rule_rows"]

_MOST_MARKERS = 6


@dataclass(frozen=True)
class Cell:
    """What a rule found in a run.

    Attributes:
        severity: the highest severity.
        text: first step with the symptom, and the tensor.
        seen: the observation.
    """

    severity: Severity
    text: str
    seen: str


@dataclass(frozen=True)
class RuleRow:
    """What a rule found in the runs.

    Attributes:
        rule: name of the rule.
        runs: number of all runs in which it fired.
        cells: what it found in each of the runs drawn; None for nothing.
    """

    rule: str
    runs: int
    cells: Sequence[Cell | None]


def rule_rows(comparison: Comparison) -> list[RuleRow]:
    """Return a row for each rule that fired in any run, the most frequent first."""
    counts = Counter(
        rule
        for run in comparison.runs
        for rule in dict.fromkeys(finding.rule for finding in run.findings)
    )
    return [
        RuleRow(rule, number, [_cell(run, rule) for run in comparison.drawn])
        for rule, number in counts.most_common()
    ]


def numbered(run: ComparedRun) -> list[tuple[int, Finding]]:
    """Return the first root causes of a run with their numbers, from 1."""
    causes = [root.finding for root in run.judged.causes]
    return list(enumerate(causes[:_MOST_MARKERS], start=1))


def _cell(run: ComparedRun, rule: str) -> Cell | None:
    found = [finding for finding in run.findings if finding.rule == rule]
    if not found:
        return None
    order = ("stop", "warning", "info")
    worst = min(found, key=lambda finding: (order.index(finding.severity), finding.step))
    layer = f" · {worst.tensor}" if worst.tensor else ""
    return Cell(worst.severity, f"since step {worst.since:,}{layer}", worst.seen)
