"""Results of counterfactuals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["SHUFFLED", "Course", "Trial", "WhatIf", "course_words", "median", "tenth"]

SHUFFLED = "labels shuffled"
"""Kind of the control whose samples do not belong to their labels."""


@dataclass
class Course:
    """The steps that a training took from a recorded state.

    Attributes:
        losses: loss of each step that was completed.
        broke: number of the step, from 0, whose loss or gradients were not finite; None if all
            were.
        failed: message of the error that ended it, or "".
        out_of_time: whether it was ended before its last step because the time was up.
        norm: largest norm of the gradients that an update consumed.
    """

    losses: list[float] = field(default_factory=list)
    broke: int | None = None
    failed: str = ""
    out_of_time: bool = False
    norm: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether all steps were taken, with finite losses and gradients."""
        return self.broke is None and not self.failed and not self.out_of_time

    @property
    def last(self) -> float:
        """Median loss of its last tenth; NaN if it was not completed."""
        return median(self.losses[-tenth(len(self.losses)) :]) if self.whole else math.nan


@dataclass(frozen=True)
class Trial:
    """The steps with one thing changed.

    Attributes:
        kind: kind of the change, such as "learning rate".
        change: the change in words, such as "learning rate 0.02 instead of 0.2".
        control: whether it should cure nothing, such as shuffled labels.
        cures: whether the symptom is gone.
        values: the value before and after; () if the change is not that of a number.
    """

    kind: str
    change: str
    control: bool
    course: Course
    cures: bool
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class WhatIf:
    """The symptom of the steps that follow a snapshot, and what cures it.

    Attributes:
        steps: number of steps of each trial.
        batches: number of different batches.
        symptom: the symptom in words; "" if there is none.
        before: loss before the first step, with the batches of the last tenth of the steps.
        unchanged: the steps without a change.
        shuffled: the steps with shuffled labels, taken before any other change if the loss falls
            and no batch is repeated; else None.
        trials: the changes that were tried, cures first.
        not_tried: the changes for which there was no time.
        controls_left: the controls that were not completed, in words: then nothing is claimed.
        judged: whether the course of the loss says something; else only values that are not finite
            are a symptom.
    """

    steps: int
    batches: int
    symptom: str
    before: float
    unchanged: Course
    shuffled: Course | None
    trials: list[Trial]
    not_tried: list[str]
    controls_left: list[str]
    judged: bool = True

    @property
    def cures(self) -> list[Trial]:
        """The best trial of each kind of change that cures the symptom.

        [] if a control cures it, or was not completed.
        """
        if not self._controlled:
            return []
        best: dict[str, Trial] = {}
        for trial in self.trials:
            if trial.cures and not trial.control:
                best.setdefault(trial.kind, trial)
        return list(best.values())

    @property
    def _controlled(self) -> bool:
        """Whether all controls were completed, and none cures the symptom."""
        return not (self.controls_left or any(map(self._refutes, self.trials)))

    def _refutes(self, trial: Trial) -> bool:
        """Return whether a control shows that cures prove nothing.

        Cures of a loss are measured against the level that is reached with shuffled labels, so that
        these refute only cures of values that are not finite.
        """
        compared = self.unchanged.whole and trial.kind == SHUFFLED
        return trial.control and trial.cures and not compared

    def verdict(self, trial: Trial) -> str:
        """Return whether one of the trials cures the symptom, in words."""
        if trial.control:
            return "cures it, control" if self._refutes(trial) else "-, control"
        if trial.cures:
            return "cures it" if self._controlled else "better, no proof"
        return "-"

    @property
    def conclusion(self) -> str:
        """What follows from the trials, in a sentence."""
        if self.unchanged.out_of_time:
            return f"nothing was tried: there was no time for {self.steps} steps"
        if not self.symptom:
            falls = f"the loss falls from {self.before:.4g} to {self.unchanged.last:.4g}"
            turns = "all values are finite; losses of models that are updated in turns say no more"
            return f"{falls if self.judged else turns}: no symptom"
        tried = [trial for trial in self.trials if not trial.control]
        controls = [trial.change for trial in self.trials if self._refutes(trial)]
        if controls:
            return f"nothing follows: {' and '.join(controls)}, a control, cures it as well"
        if self.controls_left and any(one.cures for one in tried):
            left = " and ".join(self.controls_left)
            return f"nothing follows: {left}, a control, was not completed"
        if not self.cures:
            return f"none of {len(tried)} changes cures it" if tried else "no change applies"
        changes = " or ".join(cure.change for cure in self.cures)
        losses = " or ".join(f"{cure.course.last:.4g}" for cure in self.cures)
        unchanged = course_words(self.unchanged)
        return (
            f"{changes} cures it (loss {losses} after {self.steps} steps; unchanged: {unchanged})"
        )


def course_words(course: Course) -> str:
    """Return how a course ended, in a few words."""
    if course.failed:
        return f"fails at step {len(course.losses)}: {course.failed}"
    if course.broke is not None:
        return f"not finite at step {course.broke}"
    return "not completed" if course.out_of_time else f"loss {course.last:.4g}"


def tenth(steps: int) -> int:
    """Return the number of steps whose losses are compared."""
    return max(steps // 10, 1)


def median(values: list[float]) -> float:
    """Return the upper median; NaN of no values."""
    return sorted(values)[len(values) // 2] if values else math.nan
