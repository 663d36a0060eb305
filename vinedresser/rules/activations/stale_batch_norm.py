"""Rule: the running statistics of batch norm lag far behind those of the batches."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.need import optional_statistics
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Names in PyTorch and Keras.
_RUNNING_MEANS = ("running_mean", "moving_mean")
_RUNNING_VARIANCES = ("running_var", "moving_variance")
# Too early before: the usual momentum of 0.01 to 0.1 needs about as many steps.
_FEWEST_STEPS = 100
# Share of a run after which its running statistics should be usable.
_LATE = 0.5
# Running means that were this many times as large at an early check as a small momentum allows
# follow batch means that grow.
_EARLY = 1.5


class StaleBatchNorm(OnceRule):
    """The running statistics of batch norm lag far behind those of the batches.

    A running mean starts at zero. After t steps with momentum m it has covered 1 - (1 - m)^t of the
    distance to the batch mean (Ioffe and Szegedy, 2015; momentum as in PyTorch). Its norm at t
    divided by its norm at t / 2 is q = 1 + (1 - m)^(t/2), and the covered distance is 1 - (q - 1)²:
    q is about 2 at the beginning and 1 at the end. Fires when, in the second half of the run, all
    running means together have covered less than ``reached`` at ``patience`` consecutive checks, or
    are still zero. Training does not reveal this because it uses batch statistics, but every
    evaluation does. If the length of the run is unknown, the rule waits for the end.

    Batch means that grow, such as those of a generator, also give a q of 2. Then the momentum is
    not too small if it did what a small one cannot: at the first check s the norm is far more than
    (1 - (1 - reached)^(s/t)) / reached of that at t, or the running variances, which start at 1,
    have lost more than ``reached`` of their norm.

    Args:
        reached: share of the distance. Healthy running means reach 0.8 or more; with the Keras
            default (0.01 in PyTorch's terms) they reach 0.63 after 100 steps.
        every: train steps between checks.
        patience: number of consecutive checks, counting only those with another check at half their
            step.
    """

    severity = "warning"
    fault = "stale_statistics"
    # Evaluated rows are then predicted worse than training rows, as if they had been prepared in
    # another way.
    consequences = ("outcome", "corrupt_inputs", "overfitting")
    position = 290
    inapplicable = NETWORKS_ONLY

    def __init__(self, reached: float = 0.6, every: int = 20, patience: int = 3) -> None:
        require_between(0, 1, reached=reached)
        require_at_least(1, every=every, patience=patience)
        self.reached = reached
        self.every = every
        self.patience = patience
        self.needs = optional_statistics(every, buffers=("l2",))
        # (step, norm) of the checks since half of the current step.
        self._norms: deque[tuple[int, float]] = deque()
        self._first: tuple[int, float] | None = None
        self._start_variance: float | None = None
        self._follows = False
        self._checks: list[Step] = []
        self._shown: dict[str, float] = {}
        self._last_way = 0.0

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        (need,) = self.needs
        if not need.due(step):
            return None
        buffers = step.reduction_of("buffers", "l2")
        norms = {name: norm for name, norm in buffers.items() if name.endswith(_RUNNING_MEANS)}
        self._see_variances(
            norm for name, norm in buffers.items() if name.endswith(_RUNNING_VARIANCES)
        )
        norm = math.hypot(*norms.values())
        if not norms or not math.isfinite(norm):
            return None
        self._norms.append((step.step, norm))
        # Keras has already moved those of its first step.
        if self._first is None and norm > 0 and step.step > 0:
            self._first = step.step, norm
        way = self._way()
        if way is None:
            return None
        if way >= self.reached:
            self._checks.clear()
            return None
        self._shown, self._last_way = norms, way
        self._checks = [*self._checks[-self.patience :], step]
        late = self.expected_steps is not None and step.step >= _LATE * self.expected_steps
        return self._finding(way) if late and len(self._checks) >= self.patience else None

    def at_end(self) -> Finding | None:
        """Return the finding at the end of a run of unknown length."""
        if self.expected_steps is not None or len(self._checks) < self.patience:
            return None
        return self._finding(self._last_way)

    def _see_variances(self, norms: Iterable[float]) -> None:
        """Note whether the running variances have lost more than a small momentum allows."""
        norm = math.hypot(*norms)
        if self._start_variance is None:
            self._start_variance = norm
        elif norm < (1 - self.reached) * self._start_variance:
            self._follows = True

    def _grew(self, step: int, norm: float) -> bool:
        """Return whether the batch means themselves have grown up to a step, with such a norm."""
        if self._follows or self._first is None:
            return self._follows
        early, first = self._first
        allowed: float = (1 - (1 - self.reached) ** (early / step)) / self.reached
        return first > _EARLY * allowed * norm

    def _way(self) -> float | None:
        """Return the share of the distance that the running means have covered.

        None if it is too early, or if there was no check at half of the step.
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
        if self._grew(step, norm):
            return 1.0
        # Above 2 the batch means themselves have grown.
        left = min(max(norm / before - 1, 0.0), 1.0)
        return 1 - left * left

    def _finding(self, way: float) -> Finding:
        step = self._checks[-1]
        largest = max(self._shown, key=self._shown.__getitem__)
        still = self._shown[largest] == 0
        seen = (
            f"{len(self._shown)} running means are still zero after {step.step} steps"
            if still
            else f"after {step.step} steps the running means of {len(self._shown)} layers have "
            f"covered {way:.0%} of the distance to the batch means"
        )
        return self.found(
            step,
            since=self._checks[0].step,
            tensor=largest,
            statistic="l2",
            value=way,
            threshold=self.reached,
            confidence=1 - way / self.reached / 2,
            seen=seen,
            cause="the model is never in training mode, or the momentum is 0"
            if still
            else "the momentum is too small for the length of the run: evaluations use statistics "
            "that do not match the data",
            remedy="call model.train() in the training loop"
            if still
            else f"set momentum to {_momentum(step.step):.2g} or more (PyTorch default: 0.1; in "
            "Keras, use 1 minus this value)",
            evidence={"l2": self._shown},
        )


def _momentum(steps: int) -> float:
    """Return the momentum that covers 99 % of the distance within a fifth of the steps."""
    return float(f"{min(1 - 0.01 ** (5 / steps), 0.1):.1e}")
