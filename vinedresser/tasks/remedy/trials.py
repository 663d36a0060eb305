"""Trials of changes on a snapshot of a stopped run, which choose the correction of the next one."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vinedresser.infra.supervise.bounded_command import run_bounded
from vinedresser.plain_text import visible
from vinedresser.rules.signals.parameters.hyperparameters import named
from vinedresser.rules.signals.parameters.learning_rate import LearningRate
from vinedresser.snapshots.reading import list_snapshots
from vinedresser.snapshots.record import SnapshotRecord
from vinedresser.snapshots.replay_record import ReplayRecord, read_replay
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import environment_without_run
from vinedresser.tasks.interruption import INTERRUPTED

__all__ = ["TrialSource", "Trials", "corrections", "run_trials", "snapshot_before"]

# Seconds beside the trials: to start, to build the model, and to renew the report.
_BESIDE = 120.0
# Trainings have the cores first.
_NICE = 10
# Names of hyperparameters, see `named`, and whether 0 is a value that can be raised.
_NAMES = {
    "clipping": (
        re.compile(r"(?:grad(?:ient)?)?(?:clip(?:ping)?|max|clipmax)(?:grad)?(?:norm|val(?:ue)?)?"),
        False,
    ),
    "eps": (re.compile(r"(?:adam)?eps(?:ilon)?"), True),
    "dropout": (re.compile(r"drop(?:out)?(?:rate|prob|p)?"), True),
    "weight decay": (re.compile(r"(?:weight|l2)decay|wd"), True),
}


@dataclass(frozen=True)
class Trials:
    """What trials on a snapshot say.

    Attributes:
        words: their result in words, or why there were none; "" if none were asked for.
        corrections: new values of hyperparameters, one for each change that cures the run.
    """

    words: str = ""
    corrections: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class TrialSource:
    """What builds the step of a snapshot again for trials.

    Attributes:
        factory: ``module:function`` that builds the model and the step; "" if there is none.
        script: the script that trained and its arguments, used without a factory; [] if the
            training was no script.
    """

    factory: str
    script: list[str]

    def options(self, further: list[str]) -> list[str]:
        """Return the options of `vinedresser replay`, with further ones."""
        if self.factory:
            return ["--factory", self.factory, *further]
        return ["--script", self.script[0], *further, "--", *self.script[1:]]

    def __bool__(self) -> bool:
        """Whether a step can be built again."""
        return bool(self.factory or self.script)


def run_trials(
    run: Run,
    since: int,
    parameters: Mapping[str, Any],
    source: TrialSource,
    *,
    seconds: float,
    cwd: Path,
    environment: Mapping[str, str],
) -> Trials:
    """Try changes on a snapshot of a run that is over, in a process of their own.

    The result is saved beside the snapshot, as with ``vinedresser replay --what-if --save``.

    Args:
        since: first step with the symptom.
        parameters: its hyperparameters.
        source: what builds the step again.
        seconds: time for the trials.
        cwd: directory in which the training started.
        environment: variables that the training had in addition.

    Raises:
        StoreError: the store refused a request.
    """
    faults: list[str] = []
    snapshot = snapshot_before(list_snapshots(run.storage, faults), since)
    if snapshot is None and not source.factory:
        # Nobody asked for trials.
        return Trials()
    if snapshot is None:
        why = "; ".join(["no snapshot of a torch training", *faults])
        return Trials(f"not possible: {why}")
    begun = time.time()
    place = f"{run.path}/{SnapshotRecord.KEY}/{snapshot.name}"
    command = [sys.executable, "-m", "vinedresser", "replay", place]
    options = ["--what-if", "--seconds", str(seconds), "--save"]
    with tempfile.TemporaryFile() as output:
        code = run_bounded(
            [*command, *source.options(options)],
            cwd=cwd,
            environment={**environment_without_run(), **environment},
            output=output,
            timeout=seconds + _BESIDE,
            given_up=INTERRUPTED.is_set,
            niceness=_NICE,
        )
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    found = read_replay(run.storage, snapshot.name, faults)
    if found is None or not found.tried or found.time < begun:
        last = visible(lines[-1]) if lines else f"exit code {code}"
        why = "ended, since its time was up" if code is None else last
        return Trials(f"not possible on step {snapshot.step}: {why}")
    return Trials(f"on step {snapshot.step}: {found.tried}", corrections(found, parameters))


def snapshot_before(records: list[SnapshotRecord], since: int) -> SnapshotRecord | None:
    """Return the snapshot to try changes on: the last periodic one before a symptom.

    Without it, the first one.

    Args:
        records: the snapshots of a run, by step.
        since: first step with the symptom.
    """
    usable = [record for record in records if record.framework == "torch" and record.rank == 0]
    before = [one for one in usable if one.reason == "periodic" and one.step <= since]
    return before[-1] if before else usable[0] if usable else None


def corrections(found: ReplayRecord, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the proved changes as new values of hyperparameters, the best first.

    Args:
        found: what the trials proved.
        parameters: the hyperparameters; changes of others are left out.
    """
    made = []
    for kind, values in found.cures.items():
        if len(values) != 2:
            continue
        before, after = values
        if kind == "learning rate":
            rate = LearningRate.among(parameters)
            if rate is not None and before > 0:
                made.append(rate.corrected(after / before))
        elif kind in _NAMES:
            pattern, positive = _NAMES[kind]
            name = named(parameters, pattern, positive=positive)
            if name is not None:
                made.append({name: after})
    return made
