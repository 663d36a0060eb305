"""The order of trials and what follows from them, whoever takes the steps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from vinedresser.replay.what_if.change import Facts
from vinedresser.replay.what_if.criteria import (
    cures,
    falls,
    learns_only,
    stands_still,
    symptom_of,
)
from vinedresser.replay.what_if.functions_seen import Network
from vinedresser.replay.what_if.results import SHUFFLED, Course, Trial, WhatIf

__all__ = ["FEWEST", "NamedChange", "Trainer", "Unchanged", "try_changes"]

FEWEST = 10
"""The fewest steps that are judged."""
# The share of the time for the unchanged steps.
_SHARE = 0.1


class NamedChange(Protocol):
    """A change of a training in words; see `vinedresser.replay.what_if.change.Change`."""

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

    @property
    def network(self) -> bool:
        """Whether it changes what the network computes at first."""

    @property
    def learns(self) -> bool:
        """Whether it also cures if the network learns only with it."""


_Change = TypeVar("_Change", bound=NamedChange)


@dataclass(frozen=True)
class Unchanged:
    """Steps without a change, and what was seen in them.

    Attributes:
        pace: share of their norm by which the weights moved in a step.
        batches: number of different batches.
        half: dtype of half precision that the step uses, or None.
        accumulates: gradients of a step are added to those of the step before.
        random: the step draws random numbers.
        scheduled: the learning rate follows a schedule.
        alternates: models are updated in turns, each with a loss of its own, as in a GAN: whether
            these fall says nothing.
        beginning: the training has just begun.
        network: what the model computes, if it is the only one and was seen; else None.
    """

    course: Course
    pace: float
    batches: int
    half: torch.dtype | None
    accumulates: bool
    random: bool
    scheduled: bool
    alternates: bool = False
    beginning: bool = False
    network: Network | None = None


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

    def changed(
        self, change: _Change, steps: int, deadline: float, *, shuffled: bool = False
    ) -> Course:
        """Take the steps with one of the changes, with shuffled labels if wanted."""


def try_changes(trainer: Trainer[_Change], *, steps: int, seconds: float) -> WhatIf:
    """Take steps from a recorded state, unchanged and with one thing changed each time.

    Args:
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
        beginning=seen.beginning,
        negative=min(unchanged.losses, default=0.0) < 0,
        network=seen.network,
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
    unchanged = found.unchanged
    courses: list[tuple[_Change, Course]] = []
    for one in trainer.changes(facts, found.steps, deadline):
        if found.shuffled is not None and one.kind == SHUFFLED:
            course = found.shuffled
        else:
            course = trainer.changed(one, found.steps, deadline)
        # A control that fails, for example because its labels have another shape, shows nothing.
        if one.control and (course.out_of_time or (course.failed and not unchanged.failed)):
            found.controls_left.append(one.words)
        if course.out_of_time:
            found.not_tried.append(one.words)
        else:
            courses.append((one, course))
    shuffled = next((course for one, course in courses if one.kind == SHUFFLED), None)
    for one, course in courses:
        better = _cures(found, one, course, shuffled)
        if one.learns and found.judged and not better and shuffled and course.whole:
            better = found.batches >= found.steps and learns_only(
                course,
                trainer.changed(one, found.steps, deadline, shuffled=True),
                unchanged,
                shuffled,
            )
        trial = Trial(one.kind, one.words, one.control, course, better, one.values)
        found.trials.append(trial)
    found.trials.sort(key=lambda one: (one.control, not one.cures, _order(one.course)))


def _cures(found: WhatIf, change: NamedChange, course: Course, shuffled: Course | None) -> bool:
    """Return whether the symptom is gone; see `vinedresser.replay.what_if.criteria.cures`."""
    if not found.judged:
        return course.whole
    before = found.before
    if change.network and course.losses:
        before = min(before, course.losses[0])
    if change.kind != SHUFFLED and shuffled and shuffled.whole and found.unchanged.whole:
        # What is reached with other labels is learned without the inputs.
        before = min(before, shuffled.last)
    return cures(course, before, found.unchanged, found.shuffled)


def _first(course: Course) -> float:
    return course.losses[0] if course.losses else math.nan


def _order(course: Course) -> float:
    return course.last if course.whole else math.inf
