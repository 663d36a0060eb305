"""Rule: a run that should reproduce another one deviates from it."""

from __future__ import annotations

import math

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least
from vinedresser.rules.need import Need, optional_statistics
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.series import Column
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord


class SimilarAcrossRuns(OnceRule):
    """The run deviates from another run that it should reproduce.

    The rule compares the training losses and the weight norms of each step with those of the other
    run at the same step. Fires at the first step at which one differs by more than ``tolerance``,
    relatively. Does nothing without another run.

    Args:
        other: location of the other run; "" disables the rule.
        tolerance: relative difference; 0 requires equal values. Different summation order in
            float32 causes about 1e-6 at first, which the training amplifies.
        every: train steps between checks of the weights.
    """

    severity = "warning"
    position = 450
    predecessor = "similar_across_runs"

    def __init__(self, other: str = "", tolerance: float = 1e-4, every: int = 20) -> None:
        require_at_least(0, tolerance=tolerance)
        self.other = other
        self.tolerance = tolerance
        self.every = every
        weights = optional_statistics(every, weights=("l2",))
        self.needs = (Need("losses"), *weights) if other else ()
        self._expected: dict[int, dict[str, float]] = {}

    def begin(self, info: RunRecord) -> None:  # noqa: ARG002 (the other run's, not its own)
        """Read the other run.

        Raises:
            StoreError: The other run is missing or cannot be read.
        """
        self._done = not self.other
        if self.other:
            self._expected = _values_by_step(open_run(self.other))

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        expected = self._expected.get(step.step, {})
        now = {**step.scalars_of("losses"), **step.reduction_of("weights", "l2")}
        apart = {
            name: abs(value - expected[name]) / max(abs(value), abs(expected[name]))
            for name, value in now.items()
            if name in expected and not _same(value, expected[name])
        }
        # NaN in one of the two differs from any number.
        apart = {name: one for name, one in apart.items() if not one <= self.tolerance}
        if not apart:
            return None
        first = next(iter(apart))
        return self.found(
            step,
            since=step.step,
            tensor=first,
            statistic="l2" if first.startswith("weights/") else "loss",
            value=now[first],
            threshold=expected[first],
            confidence=1.0,
            seen=f"{first} is {now[first]:.6g} at step {step.step}, but {expected[first]:.6g} in "
            f"{self.other}; {len(apart)} of {len(now)} values differ",
            cause="a different seed, data set, data order, setting or version"
            if step.step == 0
            else "the runs started equally: the data order, dropout, or nondeterministic "
            "operations differ",
            remedy="seed all random generators; use torch.use_deterministic_algorithms(True) or "
            "keras.utils.set_random_seed; compare the parameters of both runs",
            evidence={"relative": apart},
        )


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _values_by_step(run: Run) -> dict[int, dict[str, float]]:
    """Return the training losses and weight norms of a run, by step and name."""
    found: dict[int, dict[str, float]] = {}
    columns: list[Column] = [
        *run.scalars("losses", mode="train").values(),
        *run.reductions("l2", "weights", mode="train").values(),
    ]
    for column in columns:
        for step, value in zip(column.steps.tolist(), column.values.tolist(), strict=True):
            found.setdefault(step, {})[column.name] = value
    return found
