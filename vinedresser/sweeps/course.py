"""The values of a sweep's objectives in one run, as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vinedresser.sweeps.settings import Objective

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step

__all__ = ["Course"]


class Course:
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
        self._steps: list[list[int]] = [[] for _ in goals]
        self._elsewhere: set[tuple[str, str]] = set()

    def add(self, step: Step) -> list[tuple[int, float]]:
        """Take in a step of rank 0.

        Args:
            step: in the order of the run.

        Returns:
            Of each new value of the first objective its epoch, from 1, and the value.
        """
        if step.rank != 0:
            return []
        before = len(self.values[0])
        found = {**step.scalars_of("losses"), **step.scalars_of("metrics")}
        for goal, values, steps in zip(self._goals, self.values, self._steps, strict=True):
            for name, value in found.items():
                if name.partition("/")[2] != goal.metric:
                    self._elsewhere.add((name.partition("/")[2], step.mode))
                elif step.mode != goal.mode:
                    self._elsewhere.add((goal.metric, step.mode))
                else:
                    values.append(value)
                    steps.append(step.step)
        return list(enumerate(self.values[0], start=1))[before:]

    def forget(self, steps: int) -> None:
        """Forget what came after so many optimizer steps: a run that goes on there reports it."""
        for values, at in zip(self.values, self._steps, strict=True):
            count = sum(step < steps for step in at)
            del values[count:]
            # The steps of the run that goes on begin at 0 again.
            at[:] = [-1] * count

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
