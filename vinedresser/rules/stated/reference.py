"""Rule: the training leaves the spread of the user's own good runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vinedresser.plain_text import visible
from vinedresser.rules.base import Rule
from vinedresser.rules.bounds import require_above
from vinedresser.rules.stated.course import DYNAMICS, NEEDS, STEP_SECONDS, Course, edge
from vinedresser.rules.stated.good_runs import Distance, GoodRuns, lasting, settings_of
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Fewest good runs that have a spread.
_SPREAD = 3
# Windows in a row, of outcomes and of the rest, which must besides be this far from the good runs:
# by a factor of two.
_WINDOWS, _MORE = 2, 3
_FACTOR = math.log(2)
# Factor of the limit for a run that was made with other settings, and in the first steps, which
# depend on the initial weights most.
_WIDER = 2.0
_EARLY = 20
# Settings that a message names.
_NAMED = 4
# The learning rate among the settings, and the share by which equal numbers of rows differ.
_RATE, _EQUAL = "optimizer.lr", 0.05
# Characters of a setting in a message.
_LONGEST = 40


class Reference(Rule):
    """The training leaves the spread of the user's own good runs.

    Compares the levels of losses, metrics, gradient norm, update-to-weight ratio and time per step
    (`vinedresser.rules.stated.course`) with those of good runs. Fires at two consecutive windows in
    which a loss or a metric is on the same side beyond ``sigmas`` standard deviations of a further
    run, for better or worse: a result that is too good is one, too. The limit is twice as wide in
    the first 20 steps, and for a run with other settings than the good ones, which are named. For a
    run with the same settings, so does a gradient norm or an update-to-weight ratio that is at
    three windows beyond the limit and a factor of two.

    Fewer than three good runs have no spread: then, and where only these differ in a run with other
    settings, or only the times, the finding is an "info" at the end of the run. So is that the run
    is as the good ones.

    Args:
        good: what is kept of the good runs (`GoodRuns.to_json`); none: nothing is compared.
        sigmas: the limit.
    """

    severity = "warning"
    fault = "unlike_good_runs"
    stage = "outcome"
    cause_unknown = True
    position = 570
    needs = NEEDS

    def __init__(self, good: Mapping[str, Any] | None = None, sigmas: float = 4.0) -> None:
        require_above(0, sigmas=sigmas)
        self.good = good
        self.sigmas = sigmas
        self._runs = None if good is None else GoodRuns.from_json(good)
        self._course = Course()
        self._distances: dict[str, list[tuple[int, Distance]]] = {}
        self._differs: dict[str, list[Any]] = {}
        self._rate: Any = None
        self._done = False
        self._last: Step | None = None

    @classmethod
    def applies_to(cls, info: RunRecord) -> bool:
        """See `Rule.applies_to`."""
        return bool(info.references)

    def on_record(self, info: RunRecord) -> None:
        """Read the settings."""
        if self._runs is not None:
            self._differs = self._runs.differing(info)
            self._rate = settings_of(info).get(_RATE)

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._runs is None or self._done or step.rank != 0:
            return None
        self._last = step
        window = self._course.take(step)
        return None if window is None else self._compared(window, step)

    def _compared(self, window: int, step: Step) -> Finding | None:
        """Compare the levels of a window, and of the evaluations up to it."""
        assert self._runs is not None
        for name, levels in self._course.levels.items():
            known = self._distances.setdefault(name, [])
            after = known[-1][0] if known else -1
            for one in sorted(place for place in levels if after < place <= window):
                distance = self._runs.distance(name, one, levels[one])
                if distance is not None:
                    known.append((one, distance))
        apart = self._apart()
        if len(self._runs.runs) < _SPREAD or not any(map(self._tells, apart)):
            return None
        self._done = True
        return self._finding(step, [name for name in apart if self._tells(name)])

    def _tells(self, name: str) -> bool:
        """Return whether a quantity that is apart is a warning."""
        outcome = name not in DYNAMICS
        return outcome or (name != STEP_SECONDS and not self._widened)

    @property
    def _widened(self) -> bool:
        """Whether other settings explain another course; a change of the code is to be judged."""
        return any(name != "code" for name in self._differs)

    def _apart(self) -> list[str]:
        """Return the quantities that are apart, those that were so first at first."""
        found = []
        for name, known in self._distances.items():
            outcome = name not in DYNAMICS
            last = (one.sigmas / self._limit(window) for window, one in known)
            if lasting(last, _WINDOWS if outcome else _MORE):
                least = min(abs(one.off) for _, one in known[-_MORE:])
                found += [name] if outcome or least > _FACTOR else []
        return sorted(found, key=self._since)

    def _limit(self, window: int) -> float:
        limit = self.sigmas * (_WIDER if self._widened else 1.0)
        return limit * (_WIDER if edge(window) < _EARLY else 1.0)

    def _since(self, name: str) -> int:
        """Return the window from which a quantity is apart on its present side."""
        known = self._distances[name]
        side = known[-1][1].sigmas > 0
        since = known[-1][0]
        for window, one in reversed(known):
            if abs(one.sigmas) <= self.sigmas or (one.sigmas > 0) is not side:
                break
            since = window
        return since

    def finish(self) -> Finding | None:
        """See `Rule.finish`."""
        if self._runs is None or self._done or self._last is None:
            return None
        found = self._compared(self._course.finish(), self._last)
        if found is not None:
            return found
        return self._finding(self._last, self._apart(), info=True)

    def _finding(self, step: Step, apart: list[str], *, info: bool = False) -> Finding:
        runs = self._runs
        assert runs is not None
        first = apart[0] if apart else ""
        since = edge(self._since(first)) if first else 0
        one = self._distances[first][-1][1] if first else Distance(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        return self.found(
            step,
            since=since,
            tensor=first,
            statistic="level" if first else "",
            value=one.value,
            threshold=one.high if one.sigmas > 0 else one.low,
            confidence=0.9,
            seen=f"{self._words(apart)}{self._difference()}",
            cause=self._cause(first),
            remedy="see what differs: vinedresser compare RUN " + runs.runs[-1] if first else "",
            evidence={
                "runs": [*runs.runs],
                "differs": self._differs,
                "apart": {name: self._distances[name][-1][1]._asdict() for name in apart},
            },
            severity="info" if info else None,
            fault=None if first else "",
        )

    def _words(self, apart: list[str]) -> str:
        runs = self._runs
        assert runs is not None
        count = len(runs.runs)
        good = f"the last {count} good runs" if count > 1 else "the good run"
        good = f"like {good} ({', '.join(runs.runs)})"
        if not apart:
            return f"{good} in {sum(map(len, self._distances.values()))} compared levels"
        since = edge(self._since(apart[0]))
        until = f"{good} until step {since}, then" if since else f"un{good}:"
        told = []
        for name in apart[:_NAMED]:
            one = self._distances[name][-1][1]
            word = "higher" if one.sigmas > 0 else "lower"
            spread = f"{one.low:.4g} to {one.high:.4g}" if count > 1 else f"{one.usual:.4g}"
            told.append(f"{word} {name} ({one.value:.4g}, theirs {spread})")
        return f"{until} {', '.join(told)}"

    def _difference(self) -> str:
        if not self._differs:
            return "; made with the same settings"
        named = [
            f"{name} ({_short(own)}, theirs {_short(good)})"
            for name, (good, own) in [*self._differs.items()][:_NAMED]
        ]
        left = len(self._differs) - _NAMED
        more = f" and {left} more" if left > 0 else ""
        return f"; differs in: {', '.join(named)}{more}{self._global_batch()}"

    def _global_batch(self) -> str:
        """Return in words that the ranks together have more or fewer rows, but the same rate."""
        runs, own, rate = self._runs, self._course.rows, self._rate
        assert runs is not None
        known = own and runs.rows and isinstance(rate, float)
        if "ranks" not in self._differs or not known:
            return ""
        theirs, ours = self._differs["ranks"]
        same = abs(ours * own / (theirs * runs.rows) - 1) < _EQUAL
        if same or rate != runs.settings.get(_RATE):
            return ""
        rows = f"{ours} x {own:g} rows, theirs {theirs} x {runs.rows:g}"
        return f"; a step has {rows}, with the same initial learning rate {rate:g}"

    def _cause(self, first: str) -> str:
        if not first:
            return "the run is as expected"
        if self._differs:
            return "what it was made with differs from the good runs"
        return "data, code or libraries changed, without a setting that shows it"


def _short(value: object) -> str:
    """Return a setting for a message; none for a run that lacks it."""
    text = "none" if value in (None, "") else visible(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
