"""The progress of a loss relative to its own noise.

A training loss is a noisy series. It is divided into blocks of steps; the spread of neighbouring
block means gives the standard error of the mean of a longer stretch. Unlike the spread of single
values, it includes the correlation between neighbouring steps (batch means: Law and Kelton,
"Simulation Modeling and Analysis", ch. 9). Since it is computed from successive differences, a slow
trend does not count as noise (von Neumann, Ann. Math. Statist. 12, 1941).

A loss that has been below zero, such as that of a critic or of an energy, is a difference or a
logarithm: its first value may be near zero by chance, and is no unit in which it grows.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from vinedresser.rules.signals.bounded import bounded

__all__ = ["LossProgress", "Stretch", "spread"]

# Standard errors of a certain difference, and of a hint.
_SURE = 2.0
_HINT = 1.0
# The patience is 20 blocks: a stretch of 15 must stand still at each of the last 5.
_BLOCKS = 20
_STRETCH = 15
_QUARTER = 5
_TENTH = 2
# With more noise, stretches are doubled up to this factor.
_LONGEST = 16
# Maximum number of values in the start, and its desired relative error.
_START_VALUES = 40
_START_ERROR = 0.01
# Fewest values after the first one that show a rise at once.
_NEXT_VALUES = 10
# Standard deviations by which values may differ due to noise.
_ALIKE = 4.0
# Shares of `drop` per patience: slower falls than the first do not count, and a loss that may fall
# as fast as the second may still be falling.
_SLOW = 0.1
_OPEN = 0.2
# Minimum number of times that first values come down to the very first one if that was low by
# chance.
_RETURNS = 2
# Unit of a rise of a loss that has been below zero, relative to the largest of its first values and
# its lowest level.
_BELOW_ZERO = 10.0
# Rise of a block above the start, as a share of it, that counts as thrown up.
_THROWN_UP = 0.5
# A loss that moves by a smaller share stands still, however little noise it has.
_STANDSTILL = 1e-3
# Ratio to the first value from which on fewer steps suffice, and from which on any number does.
_HUGE = 100.0
_EXPLODED = 1e5


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation of values around a slow trend, from successive differences.

    It is infinite for fewer than two values.
    """
    if len(values) < 2:
        return math.inf
    squares = math.fsum((b - a) * (b - a) for a, b in pairwise(values))
    return math.sqrt(squares / (2 * (len(values) - 1)))


@dataclass(frozen=True)
class Stretch:
    """The last complete blocks of a loss.

    Attributes:
        first: first step.
        level: mean loss.
        error: standard error of the level.
        fall: difference between the means of the first and second half.
        fall_error: standard error of the fall.
    """

    first: int
    level: float
    error: float
    fall: float
    fall_error: float

    def falls(self, least: float = 0.0) -> bool:
        """Return whether the loss probably falls by more than ``least``."""
        smallest = max(least, _STANDSTILL * abs(self.level))
        return self.fall - _HINT * self.fall_error > least and self.fall > smallest

    def may_fall(self, most: float) -> bool:
        """Return whether the loss may fall by more than ``most``."""
        return self.fall + _SURE * self.fall_error > most


class LossProgress:
    """The progress of one loss; a pure fold over its values, in bounded memory.

    Args:
        patience: steps after which a loss without progress is judged; up to sixteen times as many
            if it is noisy.
        drop: fall from the start, as a share of it, that counts as having learned.

    Attributes:
        values: number of finite values.
        peak, peak_step: highest block mean, and the first step of that block.
        lowest, lowest_step: lowest block mean, and the first step of that block.
    """

    def __init__(self, patience: int, drop: float) -> None:
        self.drop = drop
        self.values = 0
        self.peak, self.peak_step = -math.inf, -1
        self.lowest, self.lowest_step = math.inf, -1
        self._size = max(1, patience // _BLOCKS)
        self._origin = 0
        self._first: list[float] = []
        self._recent: deque[float] = deque(maxlen=_QUARTER * self._size)
        self._block: list[float] = []
        self._block_first = 0
        self._blocks: deque[tuple[int, float]] = deque(maxlen=_LONGEST * _STRETCH)
        self._closed = 0
        self._still: Stretch | None = None
        self._still_for = 0

    def add(self, step: int, value: float) -> bool:
        """Process the loss of a step; return whether it completed a block.

        Steps must ascend. Values that are not finite are ignored; `Nonfinite` reports them.
        """
        if not math.isfinite(value):
            return False
        value = bounded(value)
        if not self.values:
            self._origin = self._block_first = step
        completed = step >= self._block_first + self._size
        if completed:
            self._complete_block()
            self._block_first = step - (step - self._origin) % self._size
        self._block.append(value)
        self._recent.append(value)
        self.values += 1
        if len(self._first) < _START_VALUES:
            self._first.append(value)
        return completed

    @property
    def first(self) -> float:
        """The very first loss."""
        return self._first[0]

    @property
    def both_signs(self) -> bool:
        """Whether the level of the loss has been on both sides of zero."""
        return self.below_zero and max(self.peak, self.first) > 0

    @property
    def size(self) -> float:
        """The unit of a rise: the size of the first value, or more if the loss was below zero."""
        if not self.below_zero:
            return abs(self.first)
        return _BELOW_ZERO * max(abs(self.lowest), *map(abs, self._first))

    @property
    def below_zero(self) -> bool:
        """Whether the level of the loss has been below zero."""
        return min(self.lowest, self.first) < 0

    def start(self) -> tuple[float, float]:
        """Return the loss at the start and its standard error.

        The start is the first value or, depending on the noise, the mean of up to the first forty
        values that differ by noise only. The relative noise is that of the recent values: a loss
        that rises at once would make its start look uncertain. If the first value was low by
        chance, the start is the mean of the first forty.
        """
        if self._low_by_chance():
            count = len(self._first)
            return math.fsum(self._first) / count, spread(self._first) / math.sqrt(count)
        recent = list(self._recent)
        size = abs(self.first)
        level = abs(math.fsum(recent) / len(recent))
        noise = min(spread(recent) / level, 1e3) if level else 1e3
        count = min(math.ceil((noise / _START_ERROR) ** 2), _START_VALUES)
        values = [
            *takewhile(
                lambda value: abs(value - self.first) <= _ALIKE * noise * max(abs(value), size),
                self._first[: max(1, count)],
            )
        ]
        mean = math.fsum(values) / len(values)
        return mean, noise * abs(mean) / math.sqrt(len(values))

    def now(self) -> Stretch | None:
        """Return the last quarter of the patience; None if there are too few steps."""
        return self._stretch(_QUARTER)

    def latest(self) -> Stretch | None:
        """Return the last quarter of the patience, or else the last tenth.

        None if there are too few steps.
        """
        return self.now() or self._stretch(_TENTH)

    def learned(self, drop: float) -> bool:
        """Return whether the loss is certainly below its start.

        Args:
            drop: minimum fall, as a share of the start.
        """
        now = self.now()
        if now is None:
            return False
        start, error = self.start()
        return start - now.level - _SURE * math.hypot(error, now.error) > drop * abs(start)

    def stuck(self) -> Stretch | None:
        """Return the stretch in which the loss stands still at, near or above its start.

        It must stand still after each block of a quarter of the patience. None if the loss falls,
        is well below its start, or if noise does not allow a decision yet.
        """
        return self._still if self._still_for >= _QUARTER else None

    def fallen(self, steps: int, *, of_start: bool = False) -> float:
        """Return by which share the loss has fallen in the last steps; below 0 if it has risen.

        Compares the first kept block that begins in them with the last block.

        Args:
            of_start: the share is that of the start, not of the loss before these steps.
        """
        if not self._blocks or steps < 1:
            return 0.0
        last, now = self._blocks[-1]
        before = next(mean for first, mean in self._blocks if first > last - steps)
        size = abs(self.start()[0] if of_start else before)
        return (before - now) / size if size else 0.0

    def thrown_up(self) -> bool:
        """Return whether a block rose by half of the start or more, beyond noise."""
        start, _ = self.start()
        size = self.size if self.below_zero else abs(start)
        now = self.now()
        noise = 0.0 if now is None else 5 * now.error * math.sqrt(_QUARTER)
        return self.peak - start > max(_THROWN_UP * size, noise)

    def blown_up(self, rise: float) -> bool:
        """Return whether the loss stays far above its first value and does not come down.

        All values in the last quarter of the patience must be above; a tenth suffices if they
        exceed a hundred times the first value. Never if the first value was low by chance.

        Args:
            rise: minimum rise, as a share of the first value.
        """
        now = self.latest()
        recent = list(self._recent)
        if now is None or self.first == 0 or now.falls() or self._low_by_chance():
            return False
        size = self.size
        if len(recent) == self._recent.maxlen and min(recent) > self.first + rise * size:
            return True
        tenth = recent[-_TENTH * self._size :]
        return len(tenth) == _TENTH * self._size and min(tenth) > _HUGE * size

    def risen_at_once(self) -> bool:
        """Return whether each of the next values, ten or more, is above twice the first one.

        Never if that is 0, which has no double.
        """
        later = self._first[1:]
        return len(later) >= _NEXT_VALUES and min(later) > self.first + self.size > self.first

    def _low_by_chance(self) -> bool:
        """Return whether the next values are twice as high and about as low again, several times.

        The batches differ then, as where few rows have a rare class with a large weight.
        """
        high, low = self.first + abs(self.first), self.first + abs(self.first) / 2
        falls = (before > high and value <= low for before, value in pairwise(self._first))
        return sum(falls) >= _RETURNS

    def unrecovered(self) -> Stretch | None:
        """Return the last steps of a loss that rose a hundredfold and has only come back.

        No later block is below its first value, by the share that counts as having learned, and the
        last steps are at less than twice that value: a loss that began near zero, such as that of a
        value function, stays above it. Needs fewer steps than `stuck`; None otherwise.
        """
        if not self.values:
            return None
        now = self.latest()
        size = self.size
        if now is None or not size or self.peak < _HUGE * size or now.level > self.first + size:
            return None
        later = [mean for first, mean in self._blocks if first > self.peak_step]
        return now if later and min(later) > self.first - self.drop * size else None

    def exploded(self) -> Stretch | None:
        """Return the last value of a loss of fewer steps than `latest` needs, if it exploded.

        It is 1e5 times the first value: a script that checks the range of what it computes, as the
        binary cross-entropy of torch does, fails within a few steps. None otherwise, and of losses
        that may be negative, since their first value may be near zero by chance.
        """
        least = min(self._first, default=0.0)
        if self.latest() is not None or least <= 0 or self._first[-1] < _EXPLODED * self.first:
            return None
        return Stretch(self._origin + self.values - 1, self._first[-1], 0.0, 0.0, 0.0)

    def _stretch(self, count: int) -> Stretch | None:
        """Summarise the last blocks; a middle block belongs to neither half."""
        if len(self._blocks) < count:
            return None
        blocks = list(self._blocks)[-count:]
        means = [mean for _, mean in blocks]
        half = count // 2
        noise = spread(means)
        return Stretch(
            first=blocks[0][0],
            level=math.fsum(means) / count,
            error=noise / math.sqrt(count),
            fall=(math.fsum(means[:half]) - math.fsum(means[-half:])) / half,
            fall_error=noise * math.sqrt(2 / half),
        )

    def _complete_block(self) -> None:
        mean = math.fsum(self._block) / len(self._block)
        self._blocks.append((self._block_first, mean))
        self._block = []
        self._closed += 1
        if mean > self.peak:
            self.peak, self.peak_step = mean, self._block_first
        if mean < self.lowest:
            self.lowest, self.lowest_step = mean, self._block_first
        self._still = self._standstill()
        self._still_for = self._still_for + 1 if self._still else 0

    def _standstill(self) -> Stretch | None:
        """Return the shortest stretch that allows a decision, if it shows a standstill.

        Longer ones, up to three quarters of the run, must not show a fall that the shortest hides.
        """
        start, error = self.start()
        if self.first == 0 < self.peak:
            # It has no size to compare a rise with: the first predictions of a value function may
            # all agree, and the first triplets may all be far apart.
            return None
        if self.thrown_up():
            return self._unrecovered(start)
        if self.both_signs:
            # Nor has it a size to compare its level with.
            return None
        found: Stretch | None = None
        times = 1
        while times <= _LONGEST and (stretch := self._stretch(times * _STRETCH)) is not None:
            if times > 1 and times * _STRETCH > 0.75 * self._closed:
                break
            # Fall per patience; the centres of both halves are half a stretch apart.
            unit = self.drop * abs(stretch.level) * times * _STRETCH / 2 / _BLOCKS
            if stretch.falls(_SLOW * unit):
                return None
            if found is None and not stretch.may_fall(_OPEN * unit):
                gain = start - stretch.level + _SURE * math.hypot(error, stretch.error)
                if stretch.falls() or gain >= self.drop * abs(start):
                    return None
                found = stretch
            times *= 2
        return found

    def _unrecovered(self, start: float) -> Stretch | None:
        """Return the last stretch of a loss that was thrown up and has not come down again.

        Its blocks vary widely, so their minimum is compared with the start, not their mean.
        """
        stretch = self._stretch(_STRETCH)
        if stretch is None or stretch.falls():
            return None
        lowest = min(mean for _, mean in list(self._blocks)[-_STRETCH:])
        return stretch if lowest > start - self.drop * abs(start) else None
