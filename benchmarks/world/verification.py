"""Whether trainings are what they are meant to be, by their endings alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from benchmarks.faults.verdict import Outcome
from benchmarks.measure import table
from benchmarks.world.stored import StoredCase

__all__ = ["outcomes", "verification"]

_HEADERS = ("family", "healthy", "verified", "faulty", "verified", "seconds, median", "longest")


def outcomes(cases: Sequence[StoredCase]) -> list[Outcome]:
    """Return the outcome of each case; a faulty one needs its healthy twin among the cases."""
    by_id = {case.case.id: case for case in cases}
    return [_outcome(case, by_id.get(case.case.twin.id)) for case in cases]


def _outcome(stored: StoredCase, twin: StoredCase | None) -> Outcome:
    ending = stored.ending
    measured = {"score": ending.score}
    if not stored.case.faulty:
        return Outcome(ending.good, {**measured, "bar": ending.bar})
    if twin is None:
        return Outcome(as_expected=False, measured=measured)
    measured |= {"twin": twin.ending.score, "overstated": ending.overstated or math.nan}
    return Outcome(ending.harmed(twin.ending), measured)


def verification(cases: Sequence[StoredCase]) -> str:
    """Return a table by family, and the cases that are not what they are meant to be."""
    judged = list(zip(cases, outcomes(cases), strict=True))
    families = sorted({case.case.family for case in cases})
    rows = [
        _row(name, [pair for pair in judged if pair[0].case.family == name]) for name in families
    ]
    left = [
        f"  {one.case.id}  {one.ending.crash or outcome.in_words()}"
        for one, outcome in judged
        if not outcome.as_expected
    ]
    title = f"not counted, {len(left)} of {len(judged)}: not well without a fault, or with it:"
    return "\n".join([table([*rows, _row("all", judged)], _HEADERS), "", title, *left])


def _row(name: str, judged: Sequence[tuple[StoredCase, Outcome]]) -> list[str]:
    healthy = [pair for pair in judged if not pair[0].case.faulty]
    faulty = [pair for pair in judged if pair[0].case.faulty]
    seconds = [one.seconds for one, _ in judged]
    counts = [str(count) for part in (healthy, faulty) for count in (len(part), _verified(part))]
    return [name, *counts, f"{median(seconds):.1f}", f"{max(seconds):.1f}"]


def _verified(judged: Iterable[tuple[StoredCase, Outcome]]) -> int:
    return sum(outcome.as_expected for _, outcome in judged)
