"""Compare the fall of the loss with the fall that its gradient predicts."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from vinedresser.rules.need import Need, optional_statistics
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.bounded import bounded
from vinedresser.rules.signals.losses.loss_progress import spread
from vinedresser.store.reading.step import Step

__all__ = ["Agreement", "PredictedFall"]

# Steps of a block, and maximum number of blocks; then pairs of blocks are merged.
_BLOCK = 20
_MOST = 64
# Minimum number of blocks to tell a fall from noise.
_FEWEST = 10
# Number of rises from block to block at the start that show an ascent; their bounds, as a ratio to
# the predicted fall; and the longest step p / x. In ascents the ratio was 0.4 to 1.5, or 3.1 while
# the gradient grows twelvefold. After too long steps it was below 0.1, because the loss does not
# follow its gradient then.
_RISES, _RISE, _SHORT = 3, (0.2, 5.0), 0.5


class Agreement(NamedTuple):
    """The fall of the loss, compared with the predicted one.

    Attributes:
        share: ratio of the fall per step to the predicted fall.
        fall: fall of the loss from the first half of the steps to the second.
        error: standard error of the fall.
        since: first step.
    """

    share: float
    fall: float
    error: float
    since: int


class PredictedFall(Signal):
    """The predicted fall of the loss per step, compared with the loss and with its actual fall.

    To first order a step u_i of the weights W_i with gradients g_i lowers the loss by at most
    p = sum_i |g_i| |u_i| (l2 norms; Cauchy and Schwarz), by exactly p in plain gradient descent,
    where p = lr |g|². For a loss x, p / x is the length of a step relative to Polyak's step for a
    minimum loss of 0 (B. T. Polyak, "Introduction to Optimization", 1987, sec. 5.3): on a convex
    loss a step with p / x > 2 leads away from the minimum. Along an eigenvector of the Hessian with
    eigenvalue c, a step lowers the loss by (1 - lr c / 2) p, so a fall of at least p / 2 implies a
    learning rate below the optimum 1 / c. A loss that rises by as much, after short steps, is
    maximised. Only for trainings with a single loss.

    Attributes:
        overshoot: p / x at the last check; NaN if unknown or if the loss was not positive.
        greatest_overshoot: (step, p / x) of the check with the greatest value; (0, 0.0) before.
    """

    needs = (Need("losses"), *optional_statistics(20, gradients=("l2",), updates=("l2",)))

    def __init__(self) -> None:
        self.overshoot = math.nan
        self.greatest_overshoot = (0, 0.0)
        self._positive = True
        self._predicted = math.nan
        self._size = _BLOCK
        self._losses: list[float] = []
        # For each block: first step, mean loss, predicted fall per step.
        self._blocks: list[tuple[int, float, float]] = []

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.overshoot = math.nan
        if step.rank != 0 or step.mode != "train":
            return
        losses = step.scalars_of("losses")
        loss = next(iter(losses.values()), math.nan)
        if len(losses) != 1 or not math.isfinite(loss):
            return
        self._positive &= loss > 0
        self._look(step, loss)
        if not math.isnan(self._predicted):
            self._take(step.step, bounded(loss))

    def agreements(self) -> list[Agreement]:
        """Return the agreement over the whole run and over its last half."""
        whole, late = self._blocks, self._blocks[len(self._blocks) // 2 :]
        found = (self._agreement(blocks) for blocks in (whole, late))
        return [one for one in found if one is not None]

    def ascends(self) -> bool:
        """Return whether from the start the loss rises as much as its gradients predict a fall.

        Its steps are short, so that it follows its gradient, but upwards.
        """
        pairs = list(pairwise(self._blocks[: _RISES + 1]))
        if len(pairs) < _RISES or not self._positive or self.greatest_overshoot[1] > _SHORT:
            return False
        low, high = _RISE
        for one, other in pairs:
            predicted = (one[2] + other[2]) / 2 * (other[0] - one[0])
            if not low * predicted < other[1] - one[1] < high * predicted:
                return False
        return True

    def _look(self, step: Step, loss: float) -> None:
        updates = step.reduction_of("updates", "l2")
        gradients = step.reduction_of("gradients", "l2")
        if not updates or not gradients:
            return
        parts = (
            bounded(norm) * bounded(updates.get(f"updates/{name.partition('/')[2]}", 0.0))
            for name, norm in gradients.items()
        )
        predicted = math.fsum(parts)
        if not math.isfinite(predicted):
            return
        # Blocks keep the fall that is predicted at their start.
        if step.step % _BLOCK == 0:
            self._predicted = bounded(predicted)
        if self._positive:
            self.overshoot = bounded(predicted) / loss
            if self.overshoot > self.greatest_overshoot[1]:
                self.greatest_overshoot = (step.step, self.overshoot)

    def _take(self, step: int, loss: float) -> None:
        self._losses.append(loss)
        if len(self._losses) < self._size:
            return
        mean = math.fsum(self._losses) / len(self._losses)
        self._blocks.append((step + 1 - len(self._losses), mean, self._predicted))
        self._losses = []
        if len(self._blocks) == _MOST:
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [(a[0], (a[1] + b[1]) / 2, (a[2] + b[2]) / 2) for a, b in pairs]
            self._size *= 2

    def _agreement(self, blocks: list[tuple[int, float, float]]) -> Agreement | None:
        half = len(blocks) // 2
        predicted = math.fsum(block[2] for block in blocks) / max(len(blocks), 1)
        if len(blocks) < _FEWEST or not predicted > 0:
            return None
        means = [block[1] for block in blocks]
        fall = (math.fsum(means[:half]) - math.fsum(means[-half:])) / half
        firsts = [block[0] for block in blocks]
        apart = (math.fsum(firsts[-half:]) - math.fsum(firsts[:half])) / half
        error = spread(means) * math.sqrt(2 / half)
        return Agreement(fall / apart / predicted, fall, error, blocks[0][0])
