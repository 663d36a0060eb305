"""Rule: the running statistics of batch norm are far behind those of the batches."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.need import Need
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["StaleBatchNorm"]

# As PyTorch and Keras call it.
_RUNNING_MEANS = ("running_mean", "moving_mean")
# Fewer steps say nothing: with the usual momentum of 0.01 to 0.1 it takes as many.
_FEWEST_STEPS = 100
# Share of a run after which its running statistics should be of use.
_LATE = 0.5


class StaleBatchNorm(Rule):
    """The running statistics of batch norm are far behind those of the batches.

    A running mean begins at zero and has come 1 - (1 - m)^t of the way after t steps of momentum m
    (Ioffe and Szegedy, 2015; PyTorch's momentum). So its norm at t over that at t / 2 is
    q = 1 + (1 - m)^(t/2), and it has come 1 - (q - 1)² of the way: about 2 is the ratio of one that
    has hardly begun, 1 of one that has arrived. Fires when, in the second half of the run, all
    running means together have come less than ``reached`` of the way at ``patience`` looks in a
    row, or are still zero. Training does not show it: it uses the statistics of its batches; every
    evaluation does. In a run of unknown length it waits for the end.

    Args:
        reached: share of the way. Healthy ones have come 0.8 or more; with Keras's momentum (0.01
            in PyTorch's terms) 0.63 are reached after 100 steps.
        every: train steps from one look to the next.
        patience: looks in a row, of those at whose half of the steps there was one too.
    """

    severity = "warning"
    fault = "stale_statistics"

    def __init__(self, reached: float = 0.6, every: int = 20, patience: int = 3) -> None:
        if not 0 < reached < 1:
            raise ConfigError(f"reached = {reached:g}: must lie between 0 and 1")
        if every < 1 or patience < 1:
            raise ConfigError(f"every = {every}, patience = {patience}: must be at least 1")
        self.reached = reached
        self.every = every
        self.patience = patience
        self.needs = (Need("buffers", every=every, reductions=("l2",), required=False),)
        # (step, norm) of the looks since half of the steps.
        self._norms: deque[tuple[int, float]] = deque()
        self._looks: list[Step] = []
        self._shown: dict[str, float] = {}
        self._last_way = 0.0
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        (need,) = self.needs
        if self._fired or step.rank != 0 or not need.due(step) or step.mode != "train":
            return None
        norms = {
            name: norm
            for name, norm in step.reduction_of("buffers", "l2").items()
            if name.endswith(_RUNNING_MEANS)
        }
        norm = math.hypot(*norms.values())
        if not norms or not math.isfinite(norm):
            return None
        self._norms.append((step.step, norm))
        way = self._way()
        if way is None:
            return None
        if way >= self.reached:
            self._looks.clear()
            return None
        self._shown, self._last_way = norms, way
        self._looks = [*self._looks[-self.patience :], step]
        late = self.expected_steps is not None and step.step >= _LATE * self.expected_steps
        return self._finding(way) if late and len(self._looks) >= self.patience else None

    def finish(self) -> Finding | None:
        """Return what is there at the end of a run of unknown length."""
        if self._fired or self.expected_steps is not None or len(self._looks) < self.patience:
            return None
        return self._finding(self._last_way)

    def _way(self) -> float | None:
        """Return the share of the way that the running means have come.

        None where it cannot be told: early, or where there was no look at half of the steps.
        """
        step, norm = self._norms[-1]
        if step < _FEWEST_STEPS:
            return None
        if norm == 0:
            return 0.0
        while len(self._norms) > 2 and self._norms[1][0] <= step / 2:
            self._norms.popleft()
        half, before = self._norms[0]
        if half != step / 2 or before == 0:
            return None
        # More than twice: the batches' own mean has grown besides.
        left = min(max(norm / before - 1, 0.0), 1.0)
        return 1 - left * left

    def _finding(self, way: float) -> Finding:
        self._fired = True
        step = self._looks[-1]
        largest = max(self._shown, key=self._shown.__getitem__)
        still = self._shown[largest] == 0
        seen = (
            f"{len(self._shown)} running means are zero after {step.step} steps"
            if still
            else f"after {step.step} steps the running means of {len(self._shown)} layers have "
            f"come {way:.0%} of the way to those of the batches"
        )
        return self.found(
            step,
            since=self._looks[0].step,
            tensor=largest,
            statistic="l2",
            value=way,
            threshold=self.reached,
            confidence=1 - way / self.reached / 2,
            seen=seen,
            cause="the model is never put into training mode, or the momentum is 0"
            if still
            else "a momentum that is too small for the length of the run: evaluations use "
            "statistics that are not those of the data",
            remedy="model.train() in the training loop"
            if still
            else f"momentum {_momentum(step.step):.2g} or more (PyTorch's; Keras's is 1 minus "
            "that), 0.1 by default",
            evidence={"l2": self._shown},
        )


def _momentum(steps: int) -> float:
    """Return the momentum with which 99 % of the way are done within a fifth of the steps."""
    return float(f"{min(1 - 0.01 ** (5 / steps), 0.1):.1e}")
