"""The values of a sweep's objectives that a trial has reported."""

from __future__ import annotations

from collections.abc import Sequence

from vinedresser.store.reading.results import results_of
from vinedresser.store.reading.step import Step
from vinedresser.sweeps.settings import Objective


class ObjectiveHistory:
    """Collects the values that a trial reports for its objectives.

    An epoch of the trial is one value of the first objective.

    Attributes:
        values: the values reported so far, one list per objective.
    """

    def __init__(self, goals: Sequence[Objective]) -> None:
        self._goals = tuple(goals)
        self.values: list[list[float]] = [[] for _ in goals]
        # The optimizer step of the whole trial at which each value was reported.
        self._after: list[list[int]] = [[] for _ in goals]
        self._elsewhere: set[tuple[str, str]] = set()
        # Steps that earlier runs of the trial had taken when the current one began, and the number
        # of values that they reported per objective.
        self._begun = 0
        self._earlier = [0 for _ in goals]

    def add(self, step: Step) -> list[tuple[int, float]]:
        """Add a step; steps of other ranks than 0 are ignored.

        Args:
            step: the next step in the order of the run.

        Returns:
            Epoch (from 1) and value of each new value of the first objective.
        """
        if step.rank != 0:
            return []
        new: list[tuple[int, float]] = []
        found = results_of(step)
        kinds = (f"{step.mode}/", "losses/", "metrics/", "saved/")
        names = [name for name in found if not name.startswith(kinds)]
        for number, goal in enumerate(self._goals):
            if goal.metric in found and step.mode == goal.mode:
                value = found[goal.metric]
                epoch = self._append(number, value, self._begun + step.step)
                new += [(epoch, value)] if number == 0 else []
            else:
                self._elsewhere.update((name, step.mode) for name in names)
        return new

    def go_on(self, steps: int) -> None:
        """Start another run of the trial after a number of optimizer steps of the whole trial.

        Values reported after that step are dropped: they will be reported again.
        """
        self._begun = steps
        for values, after in zip(self.values, self._after, strict=True):
            count = sum(one <= steps for one in after)
            del values[count:], after[count:]
        self._earlier = [len(values) for values in self.values]

    def _append(self, number: int, value: float, after: int) -> int:
        """Append a value of an objective; return the number of its values."""
        values, at = self.values[number], self._after[number]
        # An earlier run may have evaluated at the step where this one begins. If this run reports
        # a value for that step again, its checkpoint was saved before the evaluation.
        while len(at) == self._earlier[number] > 0 and at[-1] >= after:
            del values[-1], at[-1]
            self._earlier[number] -= 1
        values.append(value)
        at.append(after)
        return len(values)

    def result(self) -> tuple[float, ...]:
        """Return the result of each objective that has values."""
        both = zip(self._goals, self.values, strict=True)
        return tuple(goal.of(values) for goal, values in both if values)

    def missing(self) -> str:
        """Return a message about the first objective without a value; "" if all have values."""
        for goal, values in zip(self._goals, self.values, strict=True):
            if values:
                continue
            said = f"no value of {goal.metric} in mode {goal.mode}"
            modes = sorted(mode for name, mode in self._elsewhere if name == goal.metric)
            if modes:
                return f"{said}; values exist in mode {', '.join(modes)}: set mode"
            seen = sorted({f"{name} ({mode})" for name, mode in self._elsewhere})
            return f"{said}; the run recorded {', '.join(seen) or 'no metric and no loss'}"
        return ""

    @property
    def misnamed(self) -> bool:
        """Whether an objective has no value although others of its mode, or of its name, were seen.

        Then the file of the sweep is wrong, whatever the configuration of the trial.
        """
        both = zip(self._goals, self.values, strict=True)
        return any(
            not values
            and any(goal.mode == mode or goal.metric == name for name, mode in self._elsewhere)
            for goal, values in both
        )
