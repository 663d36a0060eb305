"""Bounding the values of a metric that diverges, which would flatten every chart in MLflow."""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import NamedTuple, Protocol

# Multiples of the usual magnitude: above the first, values wait for whether any of the next is
# above the second; if so, the metric has diverged.
_HIGH, _DIVERGED = 10.0, 1000.0
# Values whose median is the usual magnitude, which is at least 1, so that a loss may leave zero.
_RECENT = 100
_LEAST = 1.0
# Values that wait at most; more of them are a new level rather than the way to a divergence.
_MOST_WAITING = 100


class _Send(Protocol):
    """Sends a value of the metric."""

    def __call__(self, value: float, *, step: int, time: float) -> object: ...


class _Point(NamedTuple):
    value: float
    step: int
    time: float


class Bounding:
    """Sends the values of one metric, but of one that diverges at most ten times the usual ones.

    One value of 1e31 makes the axis of a chart so long that all others lie on one line, in every
    chart that compares runs. The metric has diverged at the first value above 1,000 times the
    usual magnitude, which is the median of the last hundred values, and at least 1. From the first
    value above ten times the usual magnitude on the way there, values beyond this are sent as ten
    times the usual magnitude, with their sign. Values that rise without diverging are sent as they
    are, at most a hundred later. Infinities have diverged; NaN is sent.

    What is sent depends only on the values, so that it is the same when a run is sent again.
    """

    def __init__(self, send: _Send) -> None:
        self._send = send
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._waiting: list[_Point] = []
        self._limit: float | None = None
        self._largest = _Point(0.0, 0, 0.0)

    @property
    def note(self) -> str:
        """The value furthest from zero and the limit, if the metric has diverged; else ""."""
        if self._limit is None:
            return ""
        return f"{self._largest.value:.6g} at step {self._largest.step}; sent up to {self._limit:g}"

    def add(self, value: float, *, step: int, time: float) -> None:
        """Add the next value of the metric.

        Args:
            time: seconds since the epoch.
        """
        point = _Point(value, step, time)
        if self._limit is not None or math.isnan(value):
            self._deliver(point)
            return
        usual = max(median(self._recent), _LEAST) if self._recent else max(abs(value), _LEAST)
        if math.isinf(value) or (self._recent and abs(value) > _DIVERGED * usual):
            self._limit = _HIGH * (usual if self._recent else _LEAST)
            self._release()
            self._deliver(point)
        elif abs(value) > _HIGH * usual:
            self._waiting.append(point)
            if len(self._waiting) > _MOST_WAITING:
                self._release()
        else:
            self._release()
            self._recent.append(abs(value))
            self._deliver(point)

    def close(self) -> None:
        """Send what waits."""
        self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for point in waiting:
            if self._limit is None:
                self._recent.append(abs(point.value))
            self._deliver(point)

    def _deliver(self, point: _Point) -> None:
        value = point.value
        if self._limit is not None and not math.isnan(value):
            if abs(value) > abs(self._largest.value):
                self._largest = point
            value = max(-self._limit, min(self._limit, value))
        self._send(value, step=point.step, time=point.time)
