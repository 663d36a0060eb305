"""Trying changes on the recorded state of a step."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import torch

from vinedresser.capture.torch_.guard.codec import Computed
from vinedresser.replay.batch import Batch
from vinedresser.replay.running import Replay
from vinedresser.replay.stepping import Replayed
from vinedresser.replay.what_if.changes import SHUFFLED, Change, Facts, changes_for, shuffle_of
from vinedresser.replay.what_if.criteria import (
    cures,
    falls,
    stands_still,
    symptom_of,
)
from vinedresser.replay.what_if.precision import HalfSeen
from vinedresser.replay.what_if.results import Course, Trial, WhatIf, median, tenth
from vinedresser.replay.what_if.training import Training

__all__ = ["what_if"]

# The fewest steps that are judged, and the share of the time for the unchanged steps.
_FEWEST = 10
_SHARE = 0.1


def what_if(replayed: Replayed, *, steps: int = 200, seconds: float = 60.0) -> WhatIf:
    """Take steps from a recorded state, unchanged and with one thing changed each time.

    All trials have the same batches and random states. The batch of the snapshot is repeated unless
    the factory returns more batches.

    Args:
        replayed: the step.
        steps: number of steps; less if there is not enough time, at least 10.
        seconds: time for all trials; one that is not completed is not judged.

    Raises:
        ConfigError: the optimizer is not known, or the step returns no loss.
    """
    again = replayed.replay
    deadline = time.monotonic() + seconds
    batches = _batches(again, steps)
    training = Training(again, batches)
    half = HalfSeen()
    accumulates = training.learn(half)
    used = not torch.equal(torch.get_rng_state(), again.step.random["torch"])
    unchanged = training.run(steps, time.monotonic() + _SHARE * seconds)
    pace = training.moved() / max(len(unchanged.losses), 1)
    if unchanged.out_of_time and len(unchanged.losses) >= _FEWEST:
        steps, unchanged.out_of_time = len(unchanged.losses), False
    before = _before(training, steps, deadline, unchanged, several=len(batches) > 1)
    shuffled = None
    # Repeated batches can be learned by heart, whatever their labels are.
    if len(batches) >= steps and falls(unchanged, before):
        shuffled = _shuffled(training, batches[0][0], steps, deadline)
    symptom = symptom_of(unchanged, before, shuffled)
    still = stands_still(unchanged, before, len(batches), pace)
    facts = Facts(
        nonfinite=unchanged.broke is not None,
        at_once=unchanged.broke == 0,
        pace=pace if still else None,
        norm=unchanged.norm,
        half=half.dtype,
        accumulates=accumulates,
        random=used,
        scheduled=any(
            one["schedulers"] for each in again.step.models.values() for one in each.optimizers
        ),
    )
    found = WhatIf(steps, len(batches), symptom, before, unchanged, shuffled, [], [], [])
    models = list(again.parts.models.values())
    if symptom:
        _try(found, training, deadline, changes_for(training, models, batches[0][0], facts))
    return found


def _try(found: WhatIf, training: Training, deadline: float, changes: list[Change]) -> None:
    """Add the trials of changes to a result, the best first."""
    unchanged, shuffled = found.unchanged, found.shuffled
    for one in changes:
        if shuffled is not None and one.kind == SHUFFLED:
            course = shuffled
        else:
            course = training.run(found.steps, deadline, one.within())
        # A control that fails, for example because its labels have another shape, shows nothing.
        if one.control and (course.out_of_time or (course.failed and not unchanged.failed)):
            found.controls_left.append(one.words)
        if course.out_of_time:
            found.not_tried.append(one.words)
            continue
        better = cures(course, found.before, unchanged, shuffled)
        trial = Trial(one.kind, one.words, one.control, course, better, one.values)
        found.trials.append(trial)
    found.trials.sort(key=lambda one: (one.control, not one.cures, _order(one.course)))


def _shuffled(training: Training, first: Batch, steps: int, deadline: float) -> Course | None:
    """Take the steps with shuffled labels."""
    change = shuffle_of(training, first)
    return None if change is None else training.run(steps, deadline, change.within())


def _order(course: Course) -> float:
    return course.last if course.whole else math.inf


def _before(
    training: Training, steps: int, deadline: float, unchanged: Course, *, several: bool
) -> float:
    """Return the loss before the first step, with the batches of the last steps."""
    if not several or not unchanged.whole:
        return unchanged.losses[0] if unchanged.losses else math.nan
    last = tenth(steps)
    held = training.run(last, deadline, first=steps - last, updates=False)
    return median(held.losses)


def _batches(again: Replay, steps: int) -> list[list[Batch]]:
    recorded = again.step.batches
    more = again.parts.batches or ()
    return [recorded, *([_batch(one, recorded[0])] for one in itertools.islice(more, steps - 1))]


def _batch(item: Any, recorded: Batch) -> Batch:
    """Return a batch of the user's iterable in the form of the recorded one."""
    if isinstance(item, Batch):
        return item
    parts = list(item) if isinstance(item, tuple | list) else [item]
    number = len(recorded.args)
    labels = iter(parts[number:])
    loss_args = tuple(
        one if isinstance(one, Computed) else next(labels, None) for one in recorded.loss_args
    )
    return Batch(tuple(parts[:number]), {}, loss_args, item)
