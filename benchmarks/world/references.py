"""Judgement with and without good runs of the same training."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from benchmarks.faults.verdict import Verdict
from benchmarks.measure import table
from benchmarks.world.stored import StoredCase

__all__ = ["beside_good_runs", "good_cases"]

_HEADERS = (
    *("families", "judged", "faulty", "found", "before 10%", "healthy", "stopped", "warned"),
)
_RULE = "reference"


def good_cases(cases: Sequence[StoredCase], number: int) -> dict[str, list[StoredCase]]:
    """Return the good runs of each pair that has as many: repetitions that ended well.

    Args:
        cases: trained cases.
        number: number of good runs.
    """
    found: dict[str, list[StoredCase]] = {}
    for case in cases:
        if case.case.repeat and not case.case.faulty and case.ending.good and case.runs:
            found.setdefault(case.case.pair, []).append(case)
    return {pair: runs[:number] for pair, runs in found.items() if len(runs) >= number}


def beside_good_runs(without: Sequence[Verdict], beside: Sequence[Verdict]) -> str:
    """Return tables of the same trainings, judged without good runs and beside them.

    Args:
        without: verdicts without good runs.
        beside: verdicts beside them.
    """
    rows = []
    for half, name in enumerate(("tuned on", "kept apart")):
        for kind, verdicts in (
            ("alone", without),
            ("beside good runs", beside),
            ("good runs only", [_only(one) for one in beside]),
        ):
            chosen = [
                verdict
                for verdict in verdicts
                if verdict.outcome.as_expected and _half(verdict) == half
            ]
            rows.append([name, kind, *_figures(chosen)])
    lines = [
        f"  {one.id}: {found.severity} {found.rule} at {found.step} of {one.steps}: {found.seen}"
        for one in sorted(beside, key=lambda one: one.id)
        if one.outcome.as_expected
        for found in one.findings
        if found.rule == _RULE and found.severity != "info"
    ]
    missed = [
        f"  {one.id}"
        for one in sorted(beside, key=lambda one: one.id)
        if one.outcome.as_expected and one.faulty and not _only(one).signs
    ]
    return "\n".join([table(rows, _HEADERS), "", "said:", *lines, "", "not said of:", *missed])


def _half(one: Verdict) -> int:
    return zlib.crc32(one.id.split("-")[0].encode()) % 2


def _only(one: Verdict) -> Verdict:
    """Return a verdict with the findings of the rule only."""
    return one.without(lambda finding: finding.rule != _RULE)


def _figures(verdicts: Sequence[Verdict]) -> list[str]:
    faulty = [verdict for verdict in verdicts if verdict.faulty]
    healthy = [verdict for verdict in verdicts if not verdict.faulty]
    found = [one for one in faulty if one.signs]
    early = [
        one for one in found if one.detected_at is not None and one.detected_at <= 0.1 * one.steps
    ]
    return [
        str(len(faulty)),
        _share(found, faulty),
        _share(early, faulty),
        str(len(healthy)),
        _share([one for one in healthy if one.stop], healthy),
        _share([one for one in healthy if one.alarms and not one.stop], healthy),
    ]


def _share(some: Sequence[Verdict], of: Sequence[Verdict]) -> str:
    return f"{len(some)}, {len(some) / len(of):.0%}" if of else ""
