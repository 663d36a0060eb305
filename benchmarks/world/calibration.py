"""How often findings are true, by the confidence that they state, and by the fault they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from benchmarks.faults.classes import right_words
from benchmarks.faults.verdict import Verdict
from benchmarks.measure import table

__all__ = ["Claim", "calibration_error", "calibration_table", "claims", "reliability"]

# Root causes of a fault that weigh as much as the share of all faults.
_PRIOR = 4.0

# Upper ends of the bins of confidence.
_BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_HEADERS = (
    *("confidence", "findings", "mean stated", "of a faulty training", "of the right class"),
    *("root causes", "mean stated", "of the right class"),
)


class Claim(NamedTuple):
    """A finding of severity stop or warning.

    Attributes:
        confidence: what it states, from 0 to 1.
        faulty: whether it is about a faulty training.
        right: whether its fault has the class of the training's.
        root: whether it is the gravest root cause, the one that is read first.
        fault: the fault that it names.
    """

    confidence: float
    faulty: bool
    right: bool
    root: bool
    fault: str = ""


def claims(verdicts: Iterable[Verdict]) -> list[Claim]:
    """Return the claims about trainings whose fault has a word, and about healthy ones."""
    found = []
    for verdict in verdicts:
        right = right_words(verdict.fault_class) if verdict.faulty else frozenset[str]()
        if verdict.faulty and not right:
            continue
        root = verdict.root
        found += [
            Claim(said.confidence, verdict.faulty, said.fault in right, said is root, said.fault)
            for said in verdict.signs
        ]
    return found


def reliability(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """Return the share of right root causes by fault.

    As in `vinedresser/rules/causes/reliability.json`.
    The shares of few root causes are drawn to that of all (the mean of a beta distribution).
    """
    roots = [claim for claim in claims(verdicts) if claim.root]
    told = Counter(root.fault for root in roots)
    right = Counter(root.fault for root in roots if root.right)
    every = sum(right.values()) / max(len(roots), 1)
    return {
        fault: round((right[fault] + _PRIOR * every) / (count + _PRIOR), 2)
        for fault, count in sorted(told.items())
        if fault
    }


def calibration_error(made: Sequence[Claim]) -> float:
    """Return the expected calibration error, from 0 to 1.

    That is the mean over the bins, weighted by their claims, of the difference between the mean
    confidence and the share of claims of the right class (Naeini et al., "Obtaining well
    calibrated probabilities using Bayesian binning", AAAI 2015). NaN without claims.
    """
    if not made:
        return float("nan")
    return sum(
        len(part) / len(made) * abs(_stated(part) - fmean(one.right for one in part))
        for part in _binned(made)
        if part
    )


def calibration_table(verdicts: Iterable[Verdict]) -> str:
    """Return a table by confidence, and the calibration errors; "" without findings."""
    made = claims(verdicts)
    if not made:
        return ""
    roots = [one for one in made if one.root]
    rows, low = [], 0.0
    for end, part, gravest in zip(_BINS, _binned(made), _binned(roots), strict=True):
        if part:
            rows.append(_row(f"{low:.1f} to {end:.1f}", part, gravest))
        low = end
    rows.append(_row("all", made, roots))
    errors = f"{calibration_error(made):.2f}; of root causes, {calibration_error(roots):.2f}"
    return f"{table(rows, _HEADERS)}\nexpected calibration error of all findings: {errors}"


def _row(name: str, part: Sequence[Claim], roots: Sequence[Claim]) -> list[str]:
    return [
        name,
        str(len(part)),
        f"{_stated(part):.2f}",
        f"{fmean(one.faulty for one in part):.2f}",
        f"{fmean(one.right for one in part):.2f}",
        str(len(roots)),
        f"{_stated(roots):.2f}" if roots else "",
        f"{fmean(root.right for root in roots):.2f}" if roots else "",
    ]


def _stated(part: Sequence[Claim]) -> float:
    return fmean(one.confidence for one in part)


def _binned(made: Sequence[Claim]) -> list[list[Claim]]:
    """Return the claims of each bin; a bin includes its upper end."""
    parts: list[list[Claim]] = [[] for _ in _BINS]
    for one in made:
        place = next(n for n, end in enumerate(_BINS) if one.confidence <= end)
        parts[place].append(one)
    return parts
