"""Rule: now and then a step takes far longer than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.system.step_times import StepTimes
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["StepOutlier"]

_BLOCK = 100
# Of a normal distribution, the standard deviation over the median absolute deviation.
_PER_MAD = 1.4826
# Steps are hardly ever the same to the microsecond: what is not this much longer is no outlier.
_TIMES_USUAL = 3.0
_SECONDS = 0.05
_FEWEST = 2


class _Slow(NamedTuple):
    """The slow steps of a block."""

    steps: NDArray[np.int64]
    seconds: NDArray[np.float64]
    usual: float
    share: float


class StepOutlier(Rule):
    """Some steps take much longer than usual, again and again, and it costs time.

    In blocks of 100 steps with median m and median absolute deviation d, a step is slow when it
    takes more than m + ``deviations`` * 1.4826 d (which for normal times is the mean and as many
    standard deviations, but is not moved by the slow ones themselves), 3 m, and m + 50 ms. Fires
    when in ``patience`` blocks in a row two steps or more are slow, and together take ``share`` of
    the time more than they would at the usual pace.

    Args:
        deviations: standard deviations.
        share: of the block's time.
        patience: blocks in a row.
    """

    severity = "info"
    needs = ()

    def __init__(self, deviations: float = 3.0, share: float = 0.1, patience: int = 3) -> None:
        if not deviations > 0:
            raise ConfigError(f"deviations = {deviations:g}: must be greater than 0")
        if not 0 < share < 1:
            raise ConfigError(f"share = {share:g}: must lie between 0 and 1")
        if patience < 1:
            raise ConfigError(f"patience = {patience}: must be at least 1 block")
        self.deviations = deviations
        self.share = share
        self.patience = patience
        self.times = StepTimes(_BLOCK)
        self._blocks: list[_Slow] = []
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0 or not self.times.full:
            return None
        slow = self._slow()
        if len(slow.steps) < _FEWEST or slow.share < self.share:
            self._blocks = []
            return None
        self._blocks.append(slow)
        if len(self._blocks) < self.patience:
            return None
        self._fired = True
        return self._finding(step)

    def _slow(self) -> _Slow:
        times = self.times
        usual = float(np.median(times.seconds))
        spread = _PER_MAD * float(np.median(np.abs(times.seconds - usual)))
        limit = max(usual + self.deviations * spread, _TIMES_USUAL * usual, usual + _SECONDS)
        places = times.seconds > limit
        lost = float((times.seconds[places] - usual).sum())
        share = lost / max(float(times.seconds.sum()), 1e-12)
        return _Slow(times.steps[places], times.seconds[places], usual, share)

    def _finding(self, step: Step) -> Finding:
        steps = np.concatenate([block.steps for block in self._blocks])
        seconds = np.concatenate([block.seconds for block in self._blocks])
        usual = self._blocks[-1].usual
        share = sum(block.share for block in self._blocks) / len(self._blocks)
        period = _period(steps)
        when = f"every {period} steps" if period else f"such as {', '.join(map(str, steps[:5]))}"
        return self.found(
            step,
            since=int(steps[0]),
            tensor="timing/step",
            statistic="seconds",
            value=float(np.median(seconds)),
            threshold=_TIMES_USUAL * usual,
            confidence=0.8 if period else 0.6,
            seen=f"{len(steps)} of {_BLOCK * len(self._blocks)} steps take "
            f"{np.median(seconds):.3g} s where the others take {usual:.3g} s ({when}); that is "
            f"{share:.0%} of the time",
            cause=f"something is done every {period} steps: a checkpoint, logging, the end of an "
            "epoch"
            if period
            else "the machine is shared, or data comes in bursts",
            remedy=f"see what the loop does every {period} steps; do it less often, or in another "
            "process"
            if period
            else "see what else runs on the machine, and load further ahead (prefetch_factor=4)",
            evidence={"steps": steps[:50].tolist(), "seconds": seconds[:50].tolist()},
        )


def _period(steps: NDArray[np.int64]) -> int | None:
    """Return the steps from one slow step to the next, if they come regularly."""
    gaps = np.diff(steps)
    period = int(np.median(gaps)) if len(gaps) else 0
    # Of a hundred, a few may have been slow by chance, or missed.
    regular = len(gaps) >= 4 and float((gaps == period).mean()) >= 0.8
    return period if period > 1 and regular else None
