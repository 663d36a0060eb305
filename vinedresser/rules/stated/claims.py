"""Judging one line of what a user expects, over the steps of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from vinedresser.errors import CorruptData, QueryError, did_you_mean
from vinedresser.queries.expectation import COMPARISONS, Expectation, Point
from vinedresser.queries.naming import matching, path_of
from vinedresser.queries.stored.needs import stored_needs
from vinedresser.rules.advice import listed
from vinedresser.rules.need import Need
from vinedresser.rules.stated.step_values import BATCH, Side, StepValues
from vinedresser.store.collections.collection import BUILT_IN

__all__ = ["Breach", "Claimed", "Progress", "claimed", "needs_of"]

# Fewest values of a course, and how many are kept: of more, each two are averaged.
_FEWEST, _MOST = 4, 1024
# Train steps between two looks at parameters and at tensors.
_EVERY = 20
_PARAMETERS = ("weights", "biases")


class Breach(NamedTuple):
    """What is wrong with an expectation.

    Attributes:
        since: first step at which it was not met.
        name: what is compared; "" if it cannot be told whether it is met.
        limit: what it was compared with.
        seen: the observation.
    """

    since: int
    name: str
    value: float
    limit: float
    seen: str


class Progress:
    """How far a training is, in steps and epochs.

    An epoch ends when a scalar named epoch changes, or else with an evaluation after the first
    step.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._training = False
        self._numbers: set[float] = set()
        self._evaluations = 0

    def take(self, values: StepValues) -> None:
        """Note a step or an evaluation."""
        self._training = values.mode == "train"
        self._steps = values.step
        if "epoch" in values.scalars:
            self._numbers.add(values.scalars["epoch"])
        self._evaluations += values.mode == "eval" and values.step > 0

    @property
    def epochs(self) -> int:
        """Number of epochs that are over."""
        return max(len(self._numbers) - 1, 0) if self._numbers else self._evaluations

    def reached(self, point: Point | None) -> bool:
        """Return whether a point is reached; None is from the start on."""
        if point is None:
            return True
        done = {"step": self._steps, "epoch": self.epochs, "end": -1}[point.unit]
        return done >= point.amount

    def passed(self, point: Point) -> bool:
        """Return whether the training continues beyond a point, with its last evaluation over."""
        return self._training and self.reached(point)

    def complete(self, point: Point | None) -> bool:
        """Return whether a run that has ended here has come to a point."""
        if point is None or point.unit == "end":
            return True
        done = self._steps + 1 if point.unit == "step" else self.epochs + bool(self._numbers)
        return done >= point.amount


class Claimed(ABC):
    """Judges one expectation; a pure fold.

    Attributes:
        unreached: the run ended before the point at which it is judged.
    """

    def __init__(self, line: Expectation) -> None:
        self.line = line
        self.done = False
        self.unreached = False
        # What was captured, to say what an unknown name could be.
        self._known: dict[str, None] = {}
        self._problem = ""

    def take(self, values: StepValues, progress: Progress) -> Breach | None:
        """Take a step or an evaluation; return a breach, or None."""
        line = self.line
        if line.by is not None and progress.passed(line.by):
            self.done = True
            return self._due(values.step)
        self._known |= dict.fromkeys(self._choices(values))
        if progress.reached(line.since):
            try:
                return self._look(values)
            except (QueryError, CorruptData) as error:
                self._problem = str(error)
        return None

    def finish(self, step: int, progress: Progress) -> Breach | None:
        """Return what is wrong after the end of the training, at its last step."""
        point = self.line.by or self.line.since
        if not progress.complete(point):
            self.unreached = True
            return self._untold(step, f"the run ended before {point}")
        return self._due(step)

    @abstractmethod
    def _look(self, values: StepValues) -> Breach | None:
        """Look at values from the point on at which it is judged."""

    @abstractmethod
    def _due(self, step: int) -> Breach | None:
        """Judge by all that was seen."""

    def _choices(self, values: StepValues) -> list[str]:
        """Return the names that it may mean."""
        return [scalar for scalar in values.scalars if scalar.startswith(f"{values.mode}/")]

    def _missing(self, step: int, *names: str) -> Breach:
        """Return that names stand for nothing that came."""
        if self._problem:
            return self._untold(step, self._problem)
        known = [*self._known]
        name = next((one for one in names if not matching(one, known)), names[0])
        near = did_you_mean(name, [*known, *map(path_of, known)])
        came = f"; there are {', '.join(known[:12])}" if known else "; nothing of its kind came"
        return self._untold(step, f"the run has no value of {name}{near}{came}")

    def _untold(self, step: int, reason: str) -> Breach:
        self.done = True
        return Breach(step, "", 0.0, 0.0, f"cannot tell whether it is met: {reason}")


class _Holds(Claimed):
    """Comparisons of values."""

    def __init__(self, line: Expectation) -> None:
        super().__init__(line)
        self._sides = [
            (comparison, Side(comparison.left), Side(comparison.right))
            for comparison in line.comparisons
        ]
        self._met: set[str] = set()
        self._modes: set[str] = set()
        self._last: Breach | None = None
        self._first: int | None = None

    def _look(self, values: StepValues) -> Breach | None:
        if values.mode == "train" and "eval" in self._modes:
            # Where evaluations have it, these count.
            return None
        wrong: Breach | None = None
        for one, left, right in self._sides:
            found = left.value(values), right.value(values)
            if found[0] is None or found[1] is None:
                return None
            if wrong is None and not one.holds(found[0], found[1]):
                word = COMPARISONS[one.operator]
                seen = (
                    f"{left.text} is {found[0]:.4g} at {values.mode} step {values.step}, {word} "
                    f"{found[1]:.4g}"
                )
                wrong = Breach(values.step, left.text, found[0], found[1], seen)
        self._modes.add(values.mode)
        self._first = values.step if self._first is None else self._first
        if wrong is None:
            self._met.add(values.mode)
        self._last = wrong or self._last
        if self.line.by is not None:
            return None
        self.done = wrong is not None
        return wrong

    def _due(self, step: int) -> Breach | None:
        mode = "eval" if "eval" in self._modes else "train"
        if not self._modes:
            names = [name for _, left, right in self._sides for name in (*left.names, *right.names)]
            return self._missing(step, *names)
        if self.line.by is None or mode in self._met:
            return None
        assert self._last is not None, "it was not met"
        assert self._first is not None, "there was a value"
        return self._last._replace(
            since=self._first, seen=f"{self._last.seen}; no value since step {self._first} met it"
        )


class _Course(Claimed):
    """The direction of a value over the run: mean of the last quarter against the first."""

    def __init__(self, line: Expectation) -> None:
        super().__init__(line)
        self._values: dict[str, list[float]] = {}
        self._sizes: dict[str, int] = {}
        self._open: dict[str, list[float]] = {}
        self._first = 0

    def _look(self, values: StepValues) -> Breach | None:
        names = matching(self.line.subject, tuple(values.scalars))
        if not names:
            return None
        mode = values.mode
        kept = self._values.setdefault(mode, [])
        if not kept and mode not in self._open:
            self._first = values.step
        waiting = self._open.setdefault(mode, [])
        waiting.append(values.scalars[names[0]])
        if len(waiting) >= self._sizes.setdefault(mode, 1):
            kept.append(float(np.mean(waiting)))
            waiting.clear()
        if len(kept) >= _MOST:
            self._values[mode] = [float(np.mean(kept[n : n + 2])) for n in range(0, _MOST, 2)]
            self._sizes[mode] *= 2
        return None

    def _due(self, step: int) -> Breach | None:
        # A training of few evaluations has more values of its own.
        enough = [mode for mode in ("eval", "train") if len(self._values.get(mode, ())) >= _FEWEST]
        if not enough:
            if not self._values:
                return self._missing(step, self.line.subject)
            counts = max(map(len, self._values.values()))
            return self._untold(step, f"only {counts} values came, and it takes {_FEWEST}")
        values = self._values[enough[0]]
        part = len(values) // _FEWEST
        before, after = float(np.mean(values[:part])), float(np.mean(values[-part:]))
        if after < before if self.line.claim == "falls" else after > before:
            return None
        name = f"{enough[0]}/{self.line.subject.rpartition('/')[2]}"
        seen = (
            f"{name} has a mean of {after:.4g} in the last quarter up to step {step}, after "
            f"{before:.4g} in the first"
        )
        return Breach(self._first, name, after, before, seen)


class _Parameters(Claimed):
    """Parameters that are to be trained, or not, by the statistics of their values."""

    def __init__(self, line: Expectation) -> None:
        super().__init__(line)
        self._before: dict[str, tuple[float, ...]] = {}
        self._moved: set[str] = set()
        self._looks = 0

    def _choices(self, values: StepValues) -> list[str]:
        return [path_of(name) for name in values.names if name.partition("/")[0] in _PARAMETERS]

    def _look(self, values: StepValues) -> Breach | None:
        now = {}
        for kind in _PARAMETERS:
            named = {path_of(name): name for name in values.names if name.startswith(f"{kind}/")}
            for path in matching(self.line.subject, tuple(named)):
                now[path] = tuple(
                    float(one)
                    for word in ("l2", "mean", "std")
                    if (one := values.known(named[path], word)) is not None
                )
        if not now:
            return None
        changed = [one for one, stats in now.items() if self._before.get(one, stats) != stats]
        self._moved |= set(changed)
        self._looks += bool(self._before)
        self._before |= now
        if self.line.claim == "trained" or not changed:
            return None
        self.done = True
        seen = f"{listed(changed)} changed between two checks, the last at step {values.step}"
        return Breach(values.step, changed[0], float(len(changed)), 0.0, seen)

    def _due(self, step: int) -> Breach | None:
        if not self._before:
            return self._missing(step, self.line.subject)
        if not self._looks:
            return self._untold(step, "its parameters were captured once only")
        still = [one for one in self._before if one not in self._moved]
        if self.line.claim == "frozen" or not still:
            return None
        seen = f"{listed(still)} did not change in {self._looks} checks up to step {step}"
        return Breach(0, still[0], 0.0, 0.0, seen)


def claimed(line: Expectation) -> Claimed:
    """Return what judges an expectation."""
    if line.claim == "holds":
        return _Holds(line)
    return (_Course if line.claim in ("falls", "rises") else _Parameters)(line)


def needs_of(lines: Iterable[str]) -> Iterator[Need]:
    """Yield what has to be captured to judge expectations, beyond losses and metrics.

    Whole tensors are captured of a batch only; of all others, the statistics that are read.

    Raises:
        ConfigError: a line is not an expectation.
    """
    for text in lines:
        line = Expectation.parse(text)
        if line.claim in ("trained", "frozen"):
            yield from (Need(one, _EVERY, ("l2",), required=False) for one in _PARAMETERS)
        yield from _needs_of_comparisons(line)


def _needs_of_comparisons(line: Expectation) -> Iterator[Need]:
    for side in (
        side for comparison in line.comparisons for side in (comparison.left, comparison.right)
    ):
        for name, words in stored_needs(side).reductions.items():
            collection = BATCH.get(name, name.partition("/")[0])
            if collection not in BUILT_IN or collection in ("losses", "metrics"):
                continue
            if words:
                yield Need(collection, _EVERY, tuple(sorted(words)), required=False)
            elif name in BATCH:
                yield Need(collection, _EVERY, tensor=True, required=False)
