"""By how much the loss should fall, by its gradient, and by how much it does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.bounded import bounded
from vinedresser.rules.signals.losses.loss_progress import spread

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["Agreement", "PredictedFall"]

# Steps of a block, and blocks that are kept; when there are more, each two become one.
_BLOCK = 20
_MOST = 64
# Blocks in which a fall can be told from noise.
_FEWEST = 10


class Agreement(NamedTuple):
    """A fall of the loss against the one that its gradient predicts.

    Attributes:
        share: the fall per step over the predicted one.
        fall: of the loss, from the first half of the steps to the second.
        error: standard error of the fall.
        since: the first step of them.
    """

    share: float
    fall: float
    error: float
    since: int


class PredictedFall(Signal):
    """The fall of the loss per step, to first order, against the loss and against its real fall.

    To first order a step u_i of the weights W_i with gradients g_i lowers the loss by at most
    p = sum_i |g_i| |u_i| (l2 norms; Cauchy and Schwarz), by exactly this in plain gradient descent,
    where it is lr |g|². Against the loss x itself, p / x is the length of a step in those of
    Polyak's rule for a least loss of 0 (B. T. Polyak, "Introduction to Optimization", 1987, sec.
    5.3): on a convex loss a step of more than 2 leads away from the minimum. Against the real fall:
    along an eigenvector of the Hessian with eigenvalue c a step lowers the loss by the share
    1 - lr c / 2 of p, so a fall of half of p or more says that the rate is below 1 / c, the best
    there is. Only for trainings of one loss.

    Attributes:
        overshoot: p / x at the last look; NaN where it is not known or the loss was not positive.
        greatest_overshoot: (step, value) of all looks until now; (0, 0.0) before.
    """

    needs = (
        Need("losses"),
        Need("gradients", every=20, reductions=("l2",), required=False),
        Need("updates", every=20, reductions=("l2",), required=False),
    )

    def __init__(self) -> None:
        self.overshoot = math.nan
        self.greatest_overshoot = (0, 0.0)
        self._positive = True
        self._predicted = math.nan
        self._size = _BLOCK
        self._losses: list[float] = []
        # Of each block: its first step, the mean loss, the predicted fall per step.
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
        """Return how real and predicted fall agree over the run, and over its last half."""
        whole, late = self._blocks, self._blocks[len(self._blocks) // 2 :]
        found = (self._agreement(blocks) for blocks in (whole, late))
        return [one for one in found if one is not None]

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
        self._predicted = bounded(predicted)
        if self._positive:
            self.overshoot = self._predicted / loss
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
        predicted = math.fsum(one[2] for one in blocks) / max(len(blocks), 1)
        if len(blocks) < _FEWEST or not predicted > 0:
            return None
        means = [one[1] for one in blocks]
        fall = (math.fsum(means[:half]) - math.fsum(means[-half:])) / half
        firsts = [one[0] for one in blocks]
        apart = (math.fsum(firsts[-half:]) - math.fsum(firsts[:half])) / half
        error = spread(means) * math.sqrt(2 / half)
        return Agreement(fall / apart / predicted, fall, error, blocks[0][0])
