"""Findings of a run prepared for the page: root causes first, each with its symptoms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vinedresser.explain.charts.markers import Marker
from vinedresser.explain.formatting import count, evidence_rows, plain
from vinedresser.explain.verdicts import Verdict
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run

__all__ = ["Card", "finding_cards", "markers_of"]

_MOST_CARDS, _MOST_MARKERS = 50, 12


@dataclass(frozen=True)
class Card:
    """A finding prepared for the page: a root cause, or a symptom in a line below it.

    Attributes:
        number: number in the page and its charts.
        title: name of the rule as words.
        evidence: rows of name and text; none for a symptom.
        remedy: what to change; "" for a symptom, which goes with its cause.
        corrections: rows of a hyperparameter and its new value; none for a symptom.
        symptoms: what a root cause explains, the first finding of each rule.
        tried: what trials from a snapshot proved to cure the run, if the finding decides the
            verdict; else "".
        is_symptom: whether it is a symptom.
    """

    number: int
    title: str
    finding: Finding
    evidence: Sequence[tuple[str, str]] = ()
    remedy: str = ""
    corrections: Sequence[tuple[str, str]] = ()
    stopped: bool = False
    symptoms: Sequence[Card] = ()
    tried: str = ""
    is_symptom: bool = False

    @property
    def all(self) -> list[Card]:
        """The root cause and its symptoms."""
        return [self, *self.symptoms]


def finding_cards(run: Run, verdict: Verdict) -> tuple[list[Card], str]:
    """Return the root causes, the one that decides the verdict first, each with its symptoms.

    Returns:
        The cards, and a note if there are none or some are left out.
    """
    cards: list[Card] = []
    number = 1
    for root, remedy in list(zip(verdict.causes, verdict.remedies, strict=True))[:_MOST_CARDS]:
        finding = root.finding
        firsts = {symptom.rule: symptom for symptom in reversed(root.symptoms)}
        symptoms = [symptom for symptom in root.symptoms if firsts[symptom.rule] is symptom]
        cards.append(
            Card(
                number=number,
                title=_title(finding),
                finding=finding,
                evidence=evidence_rows(finding.evidence),
                remedy=remedy,
                corrections=_corrections(finding, run.info.parameters) if remedy else [],
                stopped=finding is verdict.stopping,
                symptoms=[
                    Card(
                        number=place,
                        title=_title(one),
                        finding=one,
                        stopped=one is verdict.stopping,
                        is_symptom=True,
                    )
                    for place, one in enumerate(symptoms, start=number + 1)
                ],
                tried=verdict.proof if finding is verdict.finding else "",
            )
        )
        number += 1 + len(symptoms)
    more = len(verdict.causes) - len(cards)
    return cards, f"{count(more, 'more finding')} not shown" if more else ""


def _title(finding: Finding) -> str:
    return finding.rule.replace("_", " ").capitalize()


def _corrections(finding: Finding, parameters: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for name, value in finding.correction.items():
        was = f" instead of {plain(parameters[name])}" if name in parameters else ""
        rows.append((name, plain(value) + was))
    return rows


def markers_of(cards: Sequence[Card]) -> list[Marker]:
    """Return the markers of the first findings, for the charts.

    Args:
        cards: root causes.
    """
    return [
        Marker(
            number=card.number,
            step=card.finding.step,
            severity=card.finding.severity,
            title=f"{card.title} at step {card.finding.step:,}: {card.finding.seen}",
        )
        for card in [each for one in cards for each in one.all][:_MOST_MARKERS]
    ]
