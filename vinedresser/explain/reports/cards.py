"""Findings of a run prepared for the page: root causes first, each with its symptoms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vinedresser.explain.charts.markers import Marker
from vinedresser.explain.formatting import count, evidence_rows, plain
from vinedresser.explain.verdicts import decisive_finding, stopping_finding
from vinedresser.rules.causes.root_cause import RootCause, remedies, root_causes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.status import Status

__all__ = ["Card", "finding_cards", "markers_of"]

_MOST_CARDS, _MOST_MARKERS = 50, 12


@dataclass(frozen=True)
class Card:
    """A finding prepared for the page.

    Attributes:
        number: number in the page and its charts.
        title: name of the rule as words.
        finding: the finding.
        evidence: rows of name and text.
        remedy: what to change; "" for a symptom, which goes with its cause.
        corrections: rows of a hyperparameter and its new value; none for a symptom.
        stopped: the finding stopped the run.
        relation: how the root cause above explains the finding: "symptom", or "same fault" if its
            rule made the finding, too; "" for a root cause.
        symptoms: number of findings that a root cause explains.
        tried: what trials from a snapshot proved to cure the run, if the finding decides the
            verdict; else "".
    """

    number: int
    title: str
    finding: Finding
    evidence: Sequence[tuple[str, str]]
    remedy: str
    corrections: Sequence[tuple[str, str]]
    stopped: bool
    relation: str
    symptoms: int
    tried: str


def finding_cards(run: Run, status: Status, proof: str) -> tuple[list[Card], str]:
    """Return the findings: root causes first, each followed by its symptoms.

    Args:
        run: the run.
        status: status of the run.
        proof: what trials proved to cure it, or "".

    Returns:
        The cards, and a note if there are none or some are left out.
    """
    faults: list[str] = []
    findings = run.findings(faults)
    ended = stopping_finding(status, findings)
    decisive = decisive_finding(status, findings)
    roots = root_causes(findings)
    ordered = [
        (finding, root, remedy if finding is root.finding else "")
        for root, remedy in zip(roots, remedies(roots), strict=True)
        for finding in root.all
    ]
    cards = [
        Card(
            number=place,
            title=finding.rule.replace("_", " ").capitalize(),
            finding=finding,
            evidence=evidence_rows(finding.evidence),
            remedy=remedy,
            corrections=_corrections(finding, run.info.parameters) if remedy else [],
            stopped=finding is ended,
            relation=_relation(finding, root),
            symptoms=len(root.all) - 1 if finding is root.finding else 0,
            tried=proof if finding is decisive else "",
        )
        for place, (finding, root, remedy) in enumerate(ordered[:_MOST_CARDS], start=1)
    ]
    if cards:
        more = len(findings) - len(cards)
        return cards, f"{count(more, 'more finding')} not shown" if more else ""
    if faults:
        return [], f"No finding can be read: {faults[0]}"
    if run.storage.list("findings/"):
        return [], "The rules judged this run and found nothing."
    return [], "No rule has judged this run; the last section shows how to do it."


def _relation(finding: Finding, root: RootCause) -> str:
    if finding is root.finding:
        return ""
    return "same fault" if finding.rule == root.finding.rule else "symptom"


def _corrections(finding: Finding, parameters: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for name, value in finding.correction.items():
        was = f" instead of {plain(parameters[name])}" if name in parameters else ""
        rows.append((name, plain(value) + was))
    return rows


def markers_of(cards: Sequence[Card]) -> list[Marker]:
    """Return the markers of the first findings, for the charts."""
    return [
        Marker(
            number=card.number,
            step=card.finding.step,
            severity=card.finding.severity,
            title=f"{card.title} at step {card.finding.step:,}: {card.finding.seen}",
        )
        for card in cards[:_MOST_MARKERS]
    ]
