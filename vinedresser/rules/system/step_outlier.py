"""Rule: some steps take far longer than the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_at_least, require_between
from vinedresser.rules.system.step_times import StepTimes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

_BLOCK = 100
# Standard deviation of a normal distribution divided by its median absolute deviation.
_PER_MAD = 1.4826
# Step times always vary: a step must be this much longer to be an outlier.
_TIMES_USUAL = 3.0
_SECONDS = 0.05
_FEWEST = 2
# Share of steps after evaluations from which on these are no ends of epochs.
_RARE = 0.5


class _Slow(NamedTuple):
    """Slow steps of a block.

    Attributes:
        steps: step numbers, int64 [steps].
        seconds: their durations, float64 [steps].
        usual: median duration of the block in seconds.
        share: minimum share of the time that slow steps cost.
    """

    steps: NDArray[np.int64]
    seconds: NDArray[np.float64]
    usual: float
    share: float


class StepOutlier(OnceRule):
    """Some steps take much longer than usual and cost significant time.

    In blocks of 100 steps with median m and median absolute deviation d, a step is slow if it takes
    longer than m + ``deviations`` * 1.4826 d, 3 m, and m + 50 ms. For normally distributed times
    the first is the mean plus as many standard deviations, but slow steps do not affect it. Fires
    when, in ``patience`` consecutive blocks, at least two steps are slow and cost ``share`` of the
    block's time compared to the usual pace. The step after an evaluation is not slow: the end of an
    epoch takes time.

    Args:
        deviations: number of standard deviations.
        share: share of the block's time.
        patience: number of consecutive blocks.
    """

    severity = "info"
    position = 480

    def __init__(self, deviations: float = 3.0, share: float = 0.1, patience: int = 3) -> None:
        require_above(0, deviations=deviations)
        require_between(0, 1, share=share)
        require_at_least(1, patience=patience)
        self.deviations = deviations
        self.share = share
        self.patience = patience
        self.times = StepTimes(_BLOCK)
        self._blocks: list[_Slow] = []

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if not self.times.full:
            return None
        slow = self._slow()
        if len(slow.steps) < _FEWEST or slow.share < self.share:
            self._blocks = []
            return None
        self._blocks.append(slow)
        if len(self._blocks) < self.patience:
            return None
        return self._finding(step)

    def _slow(self) -> _Slow:
        times = self.times
        usual = float(np.median(times.seconds))
        spread = _PER_MAD * float(np.median(np.abs(times.seconds - usual)))
        limit = max(usual + self.deviations * spread, _TIMES_USUAL * usual, usual + _SECONDS)
        # The end of an epoch takes time, unless each step is followed by an evaluation.
        ends = times.resumed if times.resumed.mean() < _RARE else np.zeros_like(times.resumed)
        places = (times.seconds > limit) & ~ends
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
            f"{np.median(seconds):.3g} s instead of {usual:.3g} s ({when}), which costs "
            f"{share:.0%} of the time",
            cause=f"extra work every {period} steps: a checkpoint, logging, the end of an epoch, "
            "or the capture of tensors, which costs more on a busy machine"
            if period
            else "the machine is shared, or data arrives in bursts",
            remedy=f"check what the loop does every {period} steps; do it less often or in "
            "another process"
            if period
            else "check what else runs on the machine, and prefetch more data (prefetch_factor=4)",
            evidence={"steps": steps[:50].tolist(), "seconds": seconds[:50].tolist()},
        )


def _period(steps: NDArray[np.int64]) -> int | None:
    """Return the number of steps between slow steps if it is regular.

    Args:
        steps: numbers of the slow steps, int64 [steps].
    """
    gaps = np.diff(steps)
    period = int(np.median(gaps)) if len(gaps) else 0
    # Some steps may be slow by chance, or missed.
    regular = len(gaps) >= 4 and float((gaps == period).mean()) >= 0.8
    return period if period > 1 and regular else None
