"""The values of a metric, and whether they improve."""

from __future__ import annotations

import math

from vinedresser.rules.signals.bounded import bounded
from vinedresser.rules.signals.outcomes.metric_scale import direction

__all__ = ["MetricTrend"]

_MOST_VALUES = 128
_SURE, _VERY_SURE = 2.0, 3.0
_FEWEST = 4
# Learning only the class frequencies improves an accuracy slightly.
_LEAST = 0.1
# Share of the first values that a metric has lost that became worse.
_LOST = 0.5
# Values of a metric that stands: fewest, share of all, and the first ones that it is compared with.
_STANDING, _SHARE_STANDING, _BEFORE = 40, 0.5, 4


class MetricTrend:
    """The values of one metric, in bounded memory: neighbours are averaged if there are many.

    Args:
        name: name of the metric, which determines the better direction.

    Attributes:
        direction: see `metric_scale.direction`.
        last: last value; NaN before.
        values: number of values.
        worst_before: the worst of the first four values, times the direction.
    """

    def __init__(self, name: str) -> None:
        self.direction = direction(name)
        self.last = math.nan
        self.values = 0
        self.worst_before = math.inf
        # How many values in a row equal the last one.
        self._equal = 0
        self._means: list[float] = []
        self._pending: list[float] = []
        self._per_mean = 1

    def add(self, value: float) -> None:
        """Process the next value; ignore it if it is not finite."""
        if not math.isfinite(value):
            return
        self._equal = self._equal + 1 if value == self.last else 1
        self.last = value
        self.values += 1
        if self.values <= _BEFORE:
            self.worst_before = min(self.worst_before, self.direction * value)
        self._pending.append(bounded(value))
        if len(self._pending) < self._per_mean:
            return
        self._means.append(math.fsum(self._pending) / self._per_mean)
        self._pending = []
        if len(self._means) == _MOST_VALUES:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(a + b) / 2 for a, b in pairs]
            self._per_mean *= 2

    def recent(self) -> list[float]:
        """Return the last quarter of the values, at least one; [] without values."""
        values = [*self._means, *self._pending]
        return values[-max(1, len(values) // 4) :]

    def improving(self) -> bool:
        """Return whether the metric improves steadily, by a tenth of its first values in total.

        Steadiness is the test of Mann and Kendall, which counts the pairs of values in the right
        order: by chance a metric may jump, but not rise steadily.
        """
        sure, first, last = self._trend()
        return sure > _SURE and last - first > _LEAST * abs(first)

    def worsened(self) -> tuple[float, float] | None:
        """Return the first and last values of a metric that became steadily worse, by half or more.

        Each is a mean over an eighth of the values; None for any other metric.
        """
        sure, first, last = self._trend()
        if not sure < -_VERY_SURE or first - last < _LOST * abs(first):
            return None
        return self.direction * first, self.direction * last

    def stands_below_start(self) -> bool:
        """Return whether the metric is constant to the bit, and worse than its first values.

        It has been constant for half of its values, 40 or more; all of the first four were better.
        """
        standing = self._equal >= max(_STANDING, _SHARE_STANDING * self.values)
        return standing and self.direction * self.last < self.worst_before

    def _trend(self) -> tuple[float, float, float]:
        """Return the steadiness in standard deviations, and the first and last values.

        Greater is better; all are 0 with few values or an unknown direction.
        """
        values = [self.direction * value for value in self._means]
        count = len(values)
        if not self.direction or count < _FEWEST:
            return 0.0, 0.0, 0.0
        ordered = sum(
            (later > value) - (later < value)
            for place, value in enumerate(values)
            for later in values[place + 1 :]
        )
        deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
        eighth = max(2, count // 8)
        first = math.fsum(values[:eighth]) / eighth
        last = math.fsum(values[-eighth:]) / eighth
        # The correction for continuity.
        sure = math.copysign(max(abs(ordered) - 1, 0), ordered) / deviation
        return sure, first, last
