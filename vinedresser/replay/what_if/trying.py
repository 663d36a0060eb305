"""Trying changes on the recorded state of a step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from vinedresser.replay.batch import Batch
from vinedresser.replay.running import Replay
from vinedresser.replay.stepping import Replayed
from vinedresser.replay.what_if.change import Change, Facts
from vinedresser.replay.what_if.changes import changes_for, labels_are_apart, shuffle_of
from vinedresser.replay.what_if.functions_seen import FunctionsSeen
from vinedresser.replay.what_if.precision import HalfSeen
from vinedresser.replay.what_if.results import Course, WhatIf, median, tenth
from vinedresser.replay.what_if.training import Training
from vinedresser.replay.what_if.trials import Unchanged, try_changes
from vinedresser.snapshots.trees import Computed


def what_if(replayed: Replayed, *, steps: int = 200, seconds: float = 60.0) -> WhatIf:
    """Take steps from a recorded state, unchanged and with one thing changed each time.

    All trials have the same batches and random states. The batch of the snapshot is repeated unless
    the factory returns more batches.

    Args:
        steps: number of steps; less if there is not enough time, at least 10.
        seconds: time for all trials; one that is not completed is not judged.

    Raises:
        ConfigError: the optimizer is not known, or the step returns no loss.
    """
    return try_changes(_StepTrainer(replayed.replay, steps), steps=steps, seconds=seconds)


class _StepTrainer:
    """Takes the steps of a factory; see `vinedresser.replay.what_if.trials.Trainer`."""

    def __init__(self, again: Replay, steps: int) -> None:
        self._again = again
        self._batches = _batches(again, steps)
        self._training = Training(again, self._batches)

    def unchanged(self, steps: int, seconds: float) -> Unchanged:
        training, half = self._training, HalfSeen()
        functions = FunctionsSeen(training.model)
        accumulates = training.learn(_both(half, functions))
        random = not torch.equal(torch.get_rng_state(), self._again.step.random["torch"])
        course = training.run(steps, time.monotonic() + seconds)
        return Unchanged(
            course,
            pace=training.moved() / max(len(course.losses), 1),
            batches=len(self._batches),
            half=half.dtype,
            accumulates=accumulates,
            random=random,
            scheduled=self._again.step.scheduled,
            beginning=self._again.step.beginning,
            network=functions.ended() if len(self._again.parts.models) == 1 else None,
        )

    def before(self, steps: int, deadline: float) -> float:
        last = tenth(steps)
        held = self._training.run(last, deadline, first=steps - last, updates=False)
        return median(held.losses)

    def shuffled(self, steps: int, deadline: float) -> Course | None:
        first = self._batches[0][0]
        change = shuffle_of(self._training, first) if labels_are_apart(first) else None
        return None if change is None else self.changed(change, steps, deadline)

    def changes(self, facts: Facts, _: int, __: float, /) -> Sequence[Change]:
        models = list(self._again.parts.models.values())
        return changes_for(self._training, models, self._batches[0][0], facts)

    def changed(
        self, change: Change, steps: int, deadline: float, *, shuffled: bool = False
    ) -> Course:
        control = shuffle_of(self._training, self._batches[0][0]) if shuffled else None
        return self._training.run(steps, deadline, _together(change, control))


@contextmanager
def _both(half: HalfSeen, functions: FunctionsSeen) -> Iterator[None]:
    with half.watching(), functions.watching():
        yield


@contextmanager
def _together(change: Change, control: Change | None) -> Iterator[None]:
    with change.within(), control.within() if control else nullcontext():
        yield


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
