"""The order of trials and what follows from them, whoever takes the steps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from vinedresser.replay.what_if.changes import SHUFFLED, Facts
from vinedresser.replay.what_if.criteria import cures, falls, stands_still, symptom_of
from vinedresser.replay.what_if.results import Course, Trial, WhatIf

__all__ = ["FEWEST", "NamedChange", "Trainer", "Unchanged", "try_changes"]

FEWEST = 10
"""The fewest steps that are judged."""
# The share of the time for the unchanged steps.
_SHARE = 0.1


class NamedChange(Protocol):
    """A change of a training in words; see `vinedresser.replay.what_if.changes.Change`."""

    @property
    def kind(self) -> str:
        """Changes of one kind are alternatives."""

    @property
    def words(self) -> str:
        """The change in words."""

    @property
    def control(self) -> bool:
        """Whether it should cure nothing."""

    @property
    def values(self) -> tuple[float, ...]:
        """The value before and after."""


_Change = TypeVar("_Change", bound=NamedChange)


@dataclass(frozen=True)
class Unchanged:
    """Steps without a change, and what was seen in them.

    Attributes:
        course: the steps.
        pace: share of their norm by which the weights moved in a step.
        batches: number of different batches.
        half: dtype of half precision that the step uses, or None.
        accumulates: gradients of a step are added to those of the step before.
        random: the step draws random numbers.
        scheduled: the learning rate follows a schedule.
        alternates: models are updated in turns, each with a loss of its own, as in a GAN: whether
            these fall says nothing.
    """

    course: Course
    pace: float
    batches: int
    half: torch.dtype | None
    accumulates: bool
    random: bool
    scheduled: bool
    alternates: bool = False


class Trainer(Protocol[_Change]):
    """Takes steps from a recorded state, each time from its beginning.

    A deadline is a time of `time.monotonic` at which no other step begins.
    """

    def unchanged(self, steps: int, seconds: float) -> Unchanged:
        """Take the steps without a change, for a time that begins with the first one."""

    def before(self, steps: int, deadline: float) -> float | None:
        """Return the loss before the first step, with the last batches; None without time."""

    def shuffled(self, steps: int, deadline: float) -> Course | None:
        """Take the steps with shuffled labels; None if these are not surely apart from inputs."""

    def changes(self, facts: Facts, steps: int, deadline: float, /) -> Sequence[_Change]:
        """Return the changes that apply, those first that should be tried if time is short."""

    def changed(self, change: _Change, steps: int, deadline: float) -> Course:
        """Take the steps with one of the changes."""


def try_changes(trainer: Trainer[_Change], *, steps: int, seconds: float) -> WhatIf:
    """Take steps from a recorded state, unchanged and with one thing changed each time.

    Args:
        trainer: takes the steps.
        steps: number of steps; less if there is not enough time, at least 10.
        seconds: time for all trials; one that is not completed is not judged.

    Raises:
        ConfigError: the steps cannot be taken.
    """
    deadline = time.monotonic() + seconds
    seen = trainer.unchanged(steps, _SHARE * seconds)
    unchanged = seen.course
    if unchanged.out_of_time and len(unchanged.losses) >= FEWEST:
        steps, unchanged.out_of_time = len(unchanged.losses), False
    before = _first(unchanged)
    judged = not seen.alternates or not unchanged.whole
    if judged and seen.batches > 1 and unchanged.whole:
        held = trainer.before(steps, deadline)
        before = before if held is None else held
    shuffled = None
    # Repeated batches can be learned by heart, whatever their labels are.
    if judged and seen.batches >= steps and falls(unchanged, before):
        shuffled = trainer.shuffled(steps, deadline)
    symptom = symptom_of(unchanged, before, shuffled) if judged else ""
    still = judged and stands_still(unchanged, before, seen.batches, seen.pace)
    facts = Facts(
        nonfinite=unchanged.broke is not None,
        at_once=unchanged.broke == 0,
        pace=seen.pace if still else None,
        norm=unchanged.norm,
        half=seen.half,
        accumulates=seen.accumulates,
        random=seen.random,
        scheduled=seen.scheduled,
    )
    found = WhatIf(
        *(steps, seen.batches, symptom, before, unchanged, shuffled, [], [], []),
        judged=not seen.alternates,
    )
    if symptom:
        _try(found, trainer, facts, deadline)
    return found


def _try(found: WhatIf, trainer: Trainer[_Change], facts: Facts, deadline: float) -> None:
    """Add the trials of changes to a result, the best first."""
    unchanged, shuffled = found.unchanged, found.shuffled
    for one in trainer.changes(facts, found.steps, deadline):
        if shuffled is not None and one.kind == SHUFFLED:
            course = shuffled
        else:
            course = trainer.changed(one, found.steps, deadline)
        # A control that fails, for example because its labels have another shape, shows nothing.
        if one.control and (course.out_of_time or (course.failed and not unchanged.failed)):
            found.controls_left.append(one.words)
        if course.out_of_time:
            found.not_tried.append(one.words)
            continue
        better = cures(course, found.before, unchanged, shuffled) if found.judged else course.whole
        trial = Trial(one.kind, one.words, one.control, course, better, one.values)
        found.trials.append(trial)
    found.trials.sort(key=lambda one: (one.control, not one.cures, _order(one.course)))


def _first(course: Course) -> float:
    return course.losses[0] if course.losses else math.nan


def _order(course: Course) -> float:
    return course.last if course.whole else math.inf
