"""Trying changes in the loop of the script that trained, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch

from vinedresser.errors import ConfigError
from vinedresser.replay.answers import OutOfTime
from vinedresser.replay.script.running import run_script
from vinedresser.replay.script.settings import (
    ScriptChange,
    TrialResult,
    TrialSettings,
)
from vinedresser.replay.script.stepping import ScriptReplayed
from vinedresser.replay.what_if.change import Facts
from vinedresser.replay.what_if.results import Course, WhatIf, median, tenth
from vinedresser.replay.what_if.trials import FEWEST, Unchanged, try_changes

# Kinds of changes that change the batches of later steps on purpose, or their values.
_OTHER_BATCHES = ("other random numbers",)


def what_if(replayed: ScriptReplayed, *, steps: int = 200, seconds: float = 60.0) -> WhatIf:
    """Take steps in the script's own loop, unchanged and with one thing changed each time.

    Each trial starts the script in a process of its own, begins with the recorded step in the place
    of the script's first one, continues with the script's own batches, and ends before the script
    writes a file.

    Args:
        steps: number of steps; less if there is not enough time or the script ends, at least 10.
        seconds: time for all trials; one that is not completed is not judged.

    Raises:
        ConfigError: the script takes fewer steps before it ends or writes a file, or other batches
            each time; its optimizers are not those of the snapshot; it has several models and no
            `DataLoader`.
    """
    return try_changes(_ScriptTrainer(replayed), steps=steps, seconds=seconds)


class _ScriptTrainer:
    """Takes the steps of a script; see `vinedresser.replay.what_if.trials.Trainer`."""

    def __init__(self, replayed: ScriptReplayed) -> None:
        self._replayed = replayed
        self._batches: list[str] = []
        self._facts: Facts | None = None
        self._changes: list[ScriptChange] = []
        # The course of the first change, with which the changes that apply become known.
        self._first = Course(out_of_time=True)

    def unchanged(self, steps: int, seconds: float) -> Unchanged:
        found = self._run(TrialSettings(steps, seconds))
        if found is None:
            return Unchanged(Course(out_of_time=True), 0.0, 0, None, False, False, False)
        if found.ended and len(found.course.losses) < FEWEST:
            raise ConfigError(
                f"--script {self._replayed.command[0]}: after {len(found.course.losses)} steps of "
                f"a trial, {found.ended}, and {FEWEST} steps are needed; use --factory"
            )
        if len(self._replayed.step.models) > 1 and len(set(found.batches)) == 1 < len(
            found.batches
        ):
            raise ConfigError(
                f"--script {self._replayed.command[0]}: of several models without a DataLoader, it "
                "is not known whether trials have the same batches; use --factory"
            )
        self._batches = found.batches
        return Unchanged(
            found.course,
            found.pace,
            len(set(found.batches)),
            getattr(torch, found.half) if found.half else None,
            found.accumulates,
            found.random,
            self._replayed.step.scheduled,
            found.alternates,
            self._replayed.step.beginning,
            found.network,
        )

    def before(self, steps: int, deadline: float) -> float | None:
        settings = TrialSettings(steps, deadline - time.monotonic(), updates=False)
        found = self._run(settings, deadline)
        losses = [] if found is None else found.course.losses
        return median(losses[-tenth(steps) :]) if len(losses) == steps else None

    def shuffled(self, steps: int, deadline: float) -> Course | None:
        settings = TrialSettings(steps, deadline - time.monotonic(), shuffled=True)
        found = self._run(settings, deadline)
        if found is None:
            return Course(out_of_time=True)
        return found.course if found.changes else None

    def changes(self, facts: Facts, steps: int, deadline: float, /) -> Sequence[ScriptChange]:
        self._facts = facts
        found = self._tried(0, steps, deadline)
        if found is not None:
            self._changes, self._first = found.changes, found.course
        return self._changes

    def changed(
        self, change: ScriptChange, steps: int, deadline: float, *, shuffled: bool = False
    ) -> Course:
        place = self._changes.index(change)
        if not place and not shuffled:
            return self._first
        found = self._tried(place, steps, deadline, shuffled=shuffled)
        return Course(out_of_time=True) if found is None else found.course

    def _tried(
        self, place: int, steps: int, deadline: float, *, shuffled: bool = False
    ) -> TrialResult | None:
        """Take the steps with one of the changes; None without time."""
        assert self._facts is not None
        half = None if self._facts.half is None else str(self._facts.half).removeprefix("torch.")
        table = asdict(replace(self._facts, half=None)) | {"half": half}
        seconds = deadline - time.monotonic()
        settings = TrialSettings(steps, seconds, shuffled=shuffled, facts=table, change=place)
        found = self._run(settings, deadline)
        if found is not None and place < len(found.changes):
            self._check_batches(found, found.changes[place])
        return found

    def _check_batches(self, found: TrialResult, change: ScriptChange) -> None:
        """Refuse to compare steps with other batches."""
        same = all(one == other for one, other in zip(found.batches, self._batches, strict=False))
        if not same and change.kind not in _OTHER_BATCHES:
            raise ConfigError(
                f"--script {self._replayed.command[0]}: it draws other batches each time that it "
                "starts, so trials cannot be compared; set the seed of its generators, or use "
                "--factory"
            )

    def _run(self, trial: TrialSettings, deadline: float | None = None) -> TrialResult | None:
        """Take the steps of a trial; return None if the time does not suffice."""
        if trial.seconds <= 0:
            return None
        again = self._replayed
        # The time to start the script is not that of its unchanged steps.
        seconds = None if deadline is None else trial.seconds
        try:
            found = run_script(again.snapshot, again.command, trial=trial, seconds=seconds)
        except OutOfTime:
            return None
        return found.trial
