"""Rule: the training is not what its user expects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vinedresser.plain_text import visible
from vinedresser.queries.expectation import Expectation as Line
from vinedresser.rules.base import Rule
from vinedresser.rules.stated.claims import Breach, Claimed, Progress, claimed, needs_of
from vinedresser.rules.stated.step_values import Evaluations, StepValues
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_ORDER: tuple[Severity, ...] = ("info", "warning", "stop")


class Expectation(Rule):
    """An expectation that the user has stated is not met.

    Judges the lines of ``[expect]``, ``--expect`` and ``hook.expect``
    (`vinedresser.queries.expectation`), each with the severity that it says. Comparisons hold from
    the start, from a point on, or at one value at least up to a point; where an evaluation has the
    value, its mean over the evaluation counts, else each train step. A course compares the mean of
    the last quarter of the values with that of the first. Parameters are trained if their norm
    changes between two checks.

    What the run never had is reported as a warning that names what it had: then it cannot be told
    whether the expectation is met, and the verdict says so. A point that the run did not come to is
    an "info".

    Args:
        lines: expectations beside those of the run's record, for runs that are judged again.
    """

    severity = "warning"
    fault = "unmet_expectation"
    stage = "outcome"
    cause_unknown = True
    position = 560

    def __init__(self, lines: Sequence[str] | None = None) -> None:
        self.lines = lines
        self.needs = tuple(needs_of(lines or ()))
        self._known = [*(lines or ())]
        self._open = [claimed(Line.parse(text)) for text in self._known]
        self._progress = Progress()
        self._evaluations = Evaluations()
        self._last: Step | None = None

    @classmethod
    def applies_to(cls, info: RunRecord) -> bool:
        """See `Rule.applies_to`."""
        return bool(info.expectations)

    def on_record(self, info: RunRecord) -> None:
        """Read the lines; a script may add some in its first steps."""
        new = [text for text in info.expectations if text not in self._known]
        self._known += new
        self._open += [claimed(Line.parse(text)) for text in new]

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if not self._open or step.rank != 0:
            return None
        self._last = step
        return self._finding(step, self._taken(self._evaluations.take(step)))

    def _taken(self, complete: Iterable[StepValues]) -> list[tuple[Claimed, Breach]]:
        found: list[tuple[Claimed, Breach]] = []
        for values in complete:
            self._progress.take(values)
            judged = [(one, one.take(values, self._progress)) for one in self._open]
            found += [(one, breach) for one, breach in judged if breach is not None]
            self._open = [one for one in self._open if not one.done]
        return found

    def finish(self) -> Finding | None:
        """See `Rule.finish`."""
        if self._last is None:
            return None
        found = self._taken(self._evaluations.flush())
        judged = [(one, one.finish(self._last.step, self._progress)) for one in self._open]
        found += [(one, breach) for one, breach in judged if breach is not None]
        return self._finding(self._last, found)

    def _finding(self, step: Step, found: Sequence[tuple[Claimed, Breach]]) -> Finding | None:
        """Return the finding about all breaches of a step, the gravest first; None without any."""
        if not found:
            return None
        ranked = sorted(found, key=lambda one: (-_ORDER.index(_severity(*one)), not one[1].name))
        first, breach = ranked[0]
        told = [one for one in ranked if one[1].name] if breach.name else []
        return self.found(
            step,
            since=min(one.since for _, one in told or ranked),
            tensor=breach.name,
            statistic="value" if breach.name else "",
            value=breach.value,
            threshold=breach.limit,
            confidence=1.0,
            seen="; ".join(f"expected: {visible(one.line.text)}; {b.seen}" for one, b in ranked),
            cause="the training is not as expected, or the expectation is wrong"
            if told
            else "the run does not have what the expectation names",
            remedy="compare with a run that met it (vinedresser compare)"
            if told
            else "name a value that the run has, or capture it",
            evidence={"expected": [one.line.text for one, _ in ranked]},
            severity=_severity(first, breach),
            fault=None if told else "",
        )


def _severity(one: Claimed, breach: Breach) -> Severity:
    """Return the severity of the line for a breach, and of what cannot be told."""
    if breach.name:
        return one.line.severity
    return "info" if one.unreached else "warning"
