"""The budget of time for the captures that only rules need."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.meter import Meter
from vinedresser.capture.recording.pace import Pace
from vinedresser.errors import ConfigError

__all__ = ["CREDIT", "DEFAULT_SHARE", "CaptureBudget", "Thinning", "check_share"]

DEFAULT_SHARE = 0.02
"""Default share of a training's time for the captures that rules need."""

CREDIT = 0.25
"""Seconds that may be spent in advance: short trainings are captured completely, and the early
steps of others, in which most faults show."""
# First step that may be left out.
_FIRST = 50
# Captures between two changes of the pace, so that rare and expensive ones are among them.
_ENOUGH = 20
_SLOWEST = 64
# Weight of the latest step in the usual time of a capture that the user asked for.
_LATEST = 0.125


class Thinning(NamedTuple):
    """How much less often than usual a run was captured.

    Attributes:
        since: first step with longer intervals.
        most: largest factor of the intervals.
    """

    since: int
    most: int


class CaptureBudget:
    """Stretches the intervals of elastic save configs so that captures keep to a share of the time.

    An allowance grows with the time of the training, up to a credit, with which it starts. Once
    captures have used it up, all intervals are multiplied by a power of two, so that captured steps
    are some of those that rules expect, and rules see the same tensors of the same step. When the
    allowance has grown again, the factor becomes smaller.

    Args:
        share: share of the training's time for captures, above 0; 1: no limit.
        meter: CPU time of the callbacks in the training's thread.
        written: returns the CPU time of captures on the writer's thread so far, in seconds.
        clock: returns the time of the training, in seconds.

    Attributes:
        pace: factor of the intervals, as decided last.
        schedule: the factor at each step; several ranks share one.
        thinning: how much less often was captured; None: nothing was left out.
    """

    def __init__(
        self,
        share: float,
        meter: Meter,
        written: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.share = share
        self.pace = 1
        self.schedule = Pace()
        self.thinning: Thinning | None = None
        self._meter = meter
        self._written = written
        self._clock = clock
        self._allowance = CREDIT
        # Time of a capture without elastic parts, which the user asked for.
        self._usual = 0.0
        # Time of such captures since the last one with elastic parts.
        self._others = 0.0
        # At the last capture: the time, and that of the writer's thread; None before the first.
        self._last: tuple[float, float] | None = None
        self._cost = self._elapsed = 0.0
        self._captures = 0
        # The first step with the present pace.
        self._since = 0

    def pace_at(self, step: int) -> int:
        """Return the factor of the intervals at a train step."""
        return self.schedule.at(step)

    def measure(self, due: Due) -> None:
        """Measure the current step if tensors are due in it."""
        self._meter.on = bool(due) and not due.plain and self.share < 1

    def step_ended(self, step: int, due: Due) -> None:
        """Account for a train step in which tensors were due."""
        if self.share >= 1:
            return
        spent = self._meter.take()
        if not due.elastic:
            self._usual += _LATEST * (spent - self._usual)
            self._others += spent
            return
        whole, self._others = spent + self._others, 0.0
        now, written = self._clock(), self._written()
        last, self._last = self._last, (now, written)
        if last is None:
            # It includes the time to load libraries.
            return
        cost = max(spent - self._usual, 0.0)
        cost += (written - last[1]) * (cost / whole if whole else 1.0)
        elapsed = now - last[0]
        allowance = self._allowance + self.share * elapsed - cost
        # A single capture that takes long is not paid back for hours.
        self._allowance = min(max(allowance, -CREDIT), CREDIT)
        if step < self._since:
            return
        self._cost += cost
        self._elapsed += elapsed
        self._captures += 1
        if self._captures >= _ENOUGH and step >= _FIRST:
            self._adjust(step)

    def _adjust(self, step: int) -> None:
        """Change the pace if necessary."""
        # The factor with which the captures since the last change would have kept to the share.
        needed = self.pace * self._cost / max(self.share * self._elapsed, 1e-9)
        pace = min(2 ** max(math.ceil(math.log2(max(needed, 1.0))), 0), _SLOWEST)
        slower = self._allowance < 0 and pace > self.pace
        faster = self._allowance > CREDIT / 2 and pace < self.pace
        since = self.schedule.change(step, pace) if slower or faster else None
        if since is not None:
            self._since, self.pace = since, pace
            self._cost = self._elapsed = 0.0
            self._captures = 0
        elif self._captures >= 2 * _ENOUGH:
            # Recent captures count more.
            self._cost, self._elapsed, self._captures = self._cost / 2, self._elapsed / 2, _ENOUGH
        if slower and since is not None:
            before = self.thinning
            self.thinning = Thinning(
                since if before is None else before.since,
                pace if before is None else max(before.most, pace),
            )


def check_share(share: object, where: str) -> float:
    """Return a share of time.

    Args:
        where: beginning of the message.

    Raises:
        ConfigError: it is not a number above 0 and at most 1.
    """
    number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if not number or not 0 < share <= 1:  # type: ignore[operator]  # (checked above)
        raise ConfigError(f"{where} = {share!r}: must be above 0 and at most 1 (1: no limit)")
    return float(share)  # type: ignore[arg-type]
