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
from vinedresser.replay.what_if.changes import Change, Facts, changes_for
from vinedresser.replay.what_if.precision import HalfSeen
from vinedresser.replay.what_if.results import Course, Trial, WhatIf, median, tenth
from vinedresser.replay.what_if.training import Training

__all__ = ["what_if"]

# Share of the loss by which it must change to rise or fall, and by which a cure must lower it.
_CHANGES = 0.05
_CURES = 0.3
# A loss that falls by less has fallen little.
_FALLS = 0.5
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
    if unchanged.out_of_time and len(unchanged.losses) >= _FEWEST:
        steps, unchanged.out_of_time = len(unchanged.losses), False
    before = _before(training, steps, deadline, unchanged, several=len(batches) > 1)
    symptom = _symptom(unchanged, before)
    facts = Facts(
        nonfinite=unchanged.broke is not None,
        at_once=unchanged.broke == 0,
        slow=unchanged.whole and not symptom.startswith(_RISES),
        norm=unchanged.norm,
        half=half.dtype,
        accumulates=accumulates,
        random=used,
        scheduled=any(
            one["schedulers"] for each in again.step.models.values() for one in each.optimizers
        ),
    )
    found = WhatIf(steps, len(batches), symptom, before, unchanged, [], [], [])
    models = list(again.parts.models.values())
    if symptom:
        _try(found, training, deadline, changes_for(training, models, batches[0][0], facts))
    return found


def _try(found: WhatIf, training: Training, deadline: float, changes: list[Change]) -> None:
    """Add the trials of changes to a result, the best first."""
    unchanged = found.unchanged
    for one in changes:
        course = training.run(found.steps, deadline, one.within())
        # A control that fails, for example because its labels have another shape, shows nothing.
        if one.control and (course.out_of_time or (course.failed and not unchanged.failed)):
            found.controls_left.append(one.words)
        if course.out_of_time:
            found.not_tried.append(one.words)
            continue
        cures = _cures(course, found.before, unchanged)
        trial = Trial(one.kind, one.words, one.control, course, cures, one.values)
        found.trials.append(trial)
    found.trials.sort(key=lambda one: (one.control, not one.cures, _order(one.course)))


_RISES = "the loss rises"


def _symptom(unchanged: Course, before: float) -> str:
    if unchanged.failed:
        return f"the step fails: {unchanged.failed}"
    if unchanged.broke is not None:
        return f"not finite at step {unchanged.broke}"
    if unchanged.out_of_time:
        return ""
    change, scale = unchanged.last - before, max(abs(before), 1e-12)
    if change > _CHANGES * scale:
        return f"{_RISES} from {before:.4g} to {unchanged.last:.4g}"
    if change > -_CHANGES * scale:
        return "the loss does not fall"
    little = change > -_FALLS * scale
    return f"the loss falls only from {before:.4g} to {unchanged.last:.4g}" if little else ""


def _cures(course: Course, before: float, unchanged: Course) -> bool:
    """Return whether a symptom is gone.

    Values that were not finite are cured by finite ones whose loss does not rise; a loss that rose
    or stood, by one that falls clearly.
    """
    if not course.whole:
        return False
    first = before if math.isfinite(before) else course.losses[0]
    scale = max(abs(first), 1e-12)
    if not unchanged.whole:
        return course.last <= first + _CHANGES * scale
    gap = min(first, unchanged.last) - course.last
    if unchanged.last < first - _CHANGES * scale:
        # It falls: a cure must be clear beside the noise of small losses.
        last = unchanged.losses[-tenth(len(unchanged.losses)) :]
        if gap < max(3 * (max(last) - min(last)), abs(unchanged.last) / 2):
            return False
    return gap >= _CURES * scale


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
