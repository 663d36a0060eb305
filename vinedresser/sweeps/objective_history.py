"""The values of a sweep's objectives in one run, as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vinedresser.sweeps.settings import Objective

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["ObjectiveHistory"]


class ObjectiveHistory:
    """What a trial has reported of its objectives.

    An epoch is one value of the first objective: what a training evaluates once an epoch comes once
    an epoch.

    Args:
        goals: the objectives.

    Attributes:
        values: of each objective, those reported so far.
    """

    def __init__(self, goals: Sequence[Objective]) -> None:
        self._goals = tuple(goals)
        self.values: list[list[float]] = [[] for _ in goals]
        # After how many optimizer steps of the whole trial each was reported.
        self._after: list[list[int]] = [[] for _ in goals]
        self._elsewhere: set[tuple[str, str]] = set()
        # Steps that earlier runs had taken when the present one began, and of each objective the
        # number of values that they reported.
        self._begun = 0
        self._earlier = [0 for _ in goals]

    def add(self, step: Step) -> list[tuple[int, float]]:
        """Take in a step of rank 0.

        Args:
            step: in the order of the run.

        Returns:
            Of each new value of the first objective its epoch, from 1, and the value.
        """
        if step.rank != 0:
            return []
        new: list[tuple[int, float]] = []
        # What is called the same is one value: XGBoost's losses are its metrics, too.
        recorded = {**step.scalars_of("losses"), **step.scalars_of("metrics")}
        found = {name.partition("/")[2]: value for name, value in recorded.items()}
        for number, goal in enumerate(self._goals):
            for name, value in found.items():
                if name != goal.metric or step.mode != goal.mode:
                    self._elsewhere.add((name, step.mode))
                    continue
                epoch = self._append(number, value, self._begun + step.step)
                new += [(epoch, value)] if number == 0 else []
        return new

    def go_on(self, steps: int) -> None:
        """Have a run begin where so many optimizer steps of the whole trial were done.

        What was reported later is forgotten: it will be reported again.
        """
        self._begun = steps
        for values, after in zip(self.values, self._after, strict=True):
            count = sum(one <= steps for one in after)
            del values[count:], after[count:]
        self._earlier = [len(values) for values in self.values]

    def _append(self, number: int, value: float, after: int) -> int:
        """Append a value of an objective; return how many there are now."""
        values, at = self.values[number], self._after[number]
        # Where it begins an earlier run may have evaluated already. If this one does so again it
        # had been saved before that, else afterwards.
        while len(at) == self._earlier[number] > 0 and at[-1] >= after:
            del values[-1], at[-1]
            self._earlier[number] -= 1
        values.append(value)
        at.append(after)
        return len(values)

    def result(self) -> tuple[float, ...]:
        """Return the value of each objective; of fewer where one has none."""
        both = zip(self._goals, self.values, strict=True)
        return tuple(goal.of(values) for goal, values in both if values)

    def missing(self) -> str:
        """Return what is said of a run that had no value of an objective; "" where all have."""
        for goal, values in zip(self._goals, self.values, strict=True):
            if values:
                continue
            said = f"no value of {goal.metric} in mode {goal.mode}"
            modes = sorted(mode for name, mode in self._elsewhere if name == goal.metric)
            if modes:
                return f"{said}; there were some in mode {', '.join(modes)}: set mode"
            seen = sorted({f"{name} ({mode})" for name, mode in self._elsewhere})
            return f"{said}; the run recorded {', '.join(seen) or 'no metric and no loss'}"
        return ""
