"""How often the rules' view of a training's outcome is wrong, at shares of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.faults.processes import in_processes
from benchmarks.measure import table
from benchmarks.world.stored import StoredCase
from benchmarks.world.verification import outcomes
from vinedresser.rules.base import Rule
from vinedresser.rules.judge import judge
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.verdict import Verdict
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.step import Step

__all__ = ["SHARES", "OutcomeAt", "look", "outcome_errors"]

SHARES = (0.1, 0.2, 0.4, 0.6, 1.0)
_KINDS = ("good", "open", "poor")


class OutcomeAt(NamedTuple):
    """The views of one training.

    Attributes:
        well: whether it ended well, by its family's own measure.
        kinds: the verdict at each of `SHARES`.
    """

    well: bool
    kinds: list[str]


class _Look(Rule):
    """Reports the verdict on the outcome at steps of a run and at its end, as findings.

    Args:
        steps: the steps, ascending.
    """

    severity = "info"
    fault = "not_learning"

    def __init__(self, steps: Sequence[int]) -> None:
        self.outcome = Outcome()
        self.steps = tuple(steps)
        self._reported = 0
        self._last: Step | None = None

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if step.mode != "train":
            return None
        self._last = step
        if self._reported == len(self.steps) or step.step < self.steps[self._reported]:
            return None
        self._reported += 1
        return self._found(step, self.outcome.verdict())

    def finish(self) -> Finding | None:
        """See `Rule.finish`."""
        return None if self._last is None else self._found(self._last, self.outcome.final())

    def _found(self, step: Step, verdict: Verdict) -> Finding:
        return self.found(
            step,
            since=step.step,
            tensor="",
            statistic="",
            value=0.0,
            threshold=0.0,
            confidence=1.0,
            seen=verdict.kind,
            cause=verdict.reason,
            remedy="",
            evidence={},
        )


def look(stored: StoredCase) -> list[str]:
    """Return the verdict on a training at each of `SHARES`; [] if it is not one whole run.

    Args:
        stored: the training.
    """
    if len(stored.runs) != 1:
        return []
    run = open_run(stored.runs[0])
    steps = run.steps("train")
    if not len(steps):
        return []
    places = [int(share * (len(steps) - 1)) for share in SHARES[:-1]]
    found = judge(run, [_Look(steps[places].tolist())])
    kinds = [one.seen for one in found if one.rule == _Look.name]
    return kinds if len(kinds) == len(SHARES) else []


def outcome_errors(cases: Sequence[StoredCase], processes: int) -> str:
    """Return a table of the verdicts at shares of the runs, by how the trainings ended.

    Only trainings that are what they are meant to be are counted (`verification`). A verdict is
    wrong if it is "poor" for a training that ended well, or "good" for one that a fault harmed.

    Args:
        cases: trained cases.
        processes: number of concurrent processes.
    """
    verified = [
        one for one, outcome in zip(cases, outcomes(cases), strict=True) if outcome.as_expected
    ]
    done = in_processes(look, verified, processes, preload=[__name__], fresh=False)
    seen = [
        OutcomeAt(not stored.case.faulty, kinds)
        for stored, result in done
        if (kinds := result.result())
    ]
    return _table(seen)


def _table(seen: Iterable[OutcomeAt]) -> str:
    counts = Counter(
        (place, one.well, kind) for one in seen for place, kind in enumerate(one.kinds)
    )
    rows = []
    for place, share in enumerate(SHARES):
        cells = [f"{share:.0%}"]
        for well, wrong in ((True, "poor"), (False, "good")):
            total = sum(counts[place, well, kind] for kind in _KINDS)
            cells += [_cell(counts[place, well, kind], total, kind == wrong) for kind in _KINDS]
        rows.append(cells)
    headers = ["of the run", *(f"{end}: {kind}" for end in ("well", "harmed") for kind in _KINDS)]
    return table(rows, headers)


def _cell(count: int, total: int, wrong: bool) -> str:
    if not total:
        return ""
    return f"{count} of {total}, {count / total:.0%}" + (" wrong" if wrong else "")
