"""Evaluations that become worse from one to the next, and stay so."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from vinedresser.rules.signals.outcomes.metric_scale import direction

__all__ = ["Harm", "LastingHarm"]

_MOST_EVALUATIONS = 256
# Evaluations before the harm, of which the last show how far one differs from the next.
_FEWEST_BEFORE, _MOST_BEFORE = 4, 8
# Median of |a - 2 b + c| for independent normal numbers of standard deviation 1: 0.6745 * sqrt(6).
_MEDIAN_BEND = 1.652
# Standard deviations of an evaluation by which it has to become worse.
_SURE = 4.0
# Minimum improvement before the harm, as a share of the first evaluation.
_LEARNED = 0.1
# Reference of a rise of a loss, at least, in nats; a smaller first loss counts instead.
_UNIT = 0.5
# Minimum improvement of another value that outweighs the harm, as a share.
_BETTER = 0.02


class Harm(NamedTuple):
    """A loss or metric of the evaluations that became worse.

    Attributes:
        name: its name.
        last: step of the last good evaluation.
        first: step of the first bad one.
        before: value of the last good evaluation.
        after: best value from the ``patience``-th evaluation since on.
    """

    name: str
    last: int
    first: int
    before: float
    after: float


@dataclass
class _Evaluation:
    """Mean of a value over the batches of one evaluation."""

    step: int
    total: float
    batches: int = 1

    @property
    def value(self) -> float:
        return self.total / self.batches


class LastingHarm:
    """The evaluations of a run, the latest ones; a pure fold.

    Args:
        share: share of its value by which a loss or metric has to become worse.
        patience: number of evaluations after which it has to be so.
    """

    def __init__(self, share: float, patience: int) -> None:
        self._share, self._patience = share, patience
        self._series: dict[str, deque[_Evaluation]] = {}
        self._losses: set[str] = set()

    def add(self, step: int, losses: Mapping[str, float], metrics: Mapping[str, float]) -> None:
        """Process an evaluation or one of its batches.

        Args:
            step: train steps before it.
            losses: finite losses by name; lower is better.
            metrics: finite metrics by name, which tells what is better; others are ignored.
        """
        self._losses |= set(losses)
        known = {name: value for name, value in metrics.items() if direction(name)}
        for name, value in {**known, **losses}.items():
            series = self._series.setdefault(name, deque(maxlen=_MOST_EVALUATIONS))
            if series and series[-1].step == step:
                series[-1].total += value
                series[-1].batches += 1
            else:
                series.append(_Evaluation(step, value))

    def harm(self) -> Harm | None:
        """Return the clearest harm that lasts until now.

        None unless a value that had improved before is worse in all evaluations after the last good
        one, from the ``patience``-th of them on by its share and by four standard deviations of an
        evaluation, and no other value is better.
        """
        found = [harm for name in self._series if (harm := self._of(name)) is not None]
        if not found:
            return None
        harm = max(found, key=lambda one: abs(one.after - one.before) / (abs(one.before) or 1.0))
        return None if any(self._better(name, harm.last) for name in self._series) else harm

    def _of(self, name: str) -> Harm | None:
        sign = self._sign(name)
        series = [*self._series[name]]
        bad = [-sign * one.value for one in series]
        best: tuple[float, int] | None = None
        # From all evaluations after the change on; the first ones may be on the way.
        for at in range(len(bad) - self._patience, _FEWEST_BEFORE - 1, -1):
            last = bad[at - 1]
            rise = min(bad[at + self._patience - 1 :]) - last
            noise = _noise(bad[max(0, at - _MOST_BEFORE) : at])
            asked = max(self._share * self._scale(name, last, bad[0]), _SURE * noise)
            learned = last < bad[0] - _LEARNED * abs(bad[0])
            worse = min(bad[at:]) > last
            if worse and learned and rise > asked and (best is None or rise > best[0]):
                best = rise, at
        if best is None:
            return None
        _, at = best
        after = -sign * min(bad[at + self._patience - 1 :])
        return Harm(name, series[at - 1].step, series[at].step, series[at - 1].value, after)

    def _sign(self, name: str) -> int:
        """Return 1 if higher is better, -1 if lower is better."""
        return -1 if name in self._losses else direction(name)

    def _scale(self, name: str, last: float, first: float) -> float:
        if name not in self._losses:
            return abs(last)
        return max(abs(last), min(_UNIT, abs(first)))

    def _better(self, name: str, step: int) -> bool:
        """Return whether the last values are better than those until a step."""
        series, sign = self._series[name], self._sign(name)
        before = [sign * one.value for one in series if one.step <= step]
        after = [sign * one.value for one in series if one.step > step][-self._patience :]
        if not before or not after:
            return False
        return math.fsum(after) / len(after) > before[-1] + _BETTER * abs(before[-1])


def _noise(values: Sequence[float]) -> float:
    """Return the standard deviation of values around a trend, from their second differences."""
    changes = [b - a for a, b in pairwise(values)]
    return statistics.median(abs(b - a) for a, b in pairwise(changes)) / _MEDIAN_BEND
