"""Replaying a snapshot in the script that trained: the step, its samples, its operations."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import ConfigError
from vinedresser.infra.bounded_command import run_bounded
from vinedresser.infra.launcher import check_command
from vinedresser.plain_text import visible
from vinedresser.replay.batch import batch_size
from vinedresser.replay.recorded import RecordedStep, recorded_step
from vinedresser.replay.results import Bisection, Comparison, Located, SampleTensor
from vinedresser.replay.running import Outcome
from vinedresser.replay.samples import breaking, numbered
from vinedresser.replay.script.settings import RESULT, ScriptResult, ScriptSettings
from vinedresser.replay.stepping import sample_of
from vinedresser.snapshots.reading import Snapshot
from vinedresser.store.records import REPLAY_VARIABLE, environment_without_run

__all__ = ["ScriptReplayed", "bisect", "locate", "replay", "sample"]

# Bytes of the script's output in which its last line is looked for if it fails.
_MOST_OUTPUT = 1 << 14


@dataclass(frozen=True)
class ScriptReplayed:
    """A snapshot that was run again in the script that trained.

    Attributes:
        snapshot: the snapshot.
        command: the script and its arguments.
        step: the recorded step.
        eager: see `replay`.
        result: what the script computed.
    """

    snapshot: Snapshot
    command: list[str]
    step: RecordedStep
    eager: bool
    result: ScriptResult

    @property
    def comparison(self) -> Comparison:
        """How the step compares with the recorded one."""
        return self.result.comparison

    @property
    def outcome(self) -> Outcome:
        """What the step computed, without the digests of the gradients."""
        losses = [torch.tensor(one, dtype=torch.float64) for one in self.result.losses]
        nonfinite = {(model, path): number for model, path, number in self.result.nonfinite}
        return Outcome(losses, {}, nonfinite)


def replay(snapshot: Snapshot, command: Sequence[str], *, eager: bool = False) -> ScriptReplayed:
    """Run a script up to its first update, with the recorded step in the place of its first.

    The script runs in a process of its own, which ends before the update; what the script does
    before its first step, it does again.

    Args:
        snapshot: the snapshot.
        command: path of the Python script, and its arguments as for the training.
        eager: whether what `torch.compile` has compiled is run as it is written.

    Raises:
        ConfigError: the snapshot lacks something, or the script does not come to such a step.
        CorruptData: the snapshot is damaged.
        LaunchError: the script does not exist.
        StoreError: the storage refused.
    """
    step = recorded_step(snapshot)
    if len(step.models) > 1:
        raise ConfigError(
            f"{snapshot.location}: it has several models ({', '.join(sorted(step.models))}), whose "
            "calls a script does not tell apart; use --factory"
        )
    result = _run(snapshot, command, eager=eager)
    return ScriptReplayed(snapshot, list(command), step, eager, result)


def bisect(replayed: ScriptReplayed) -> Bisection | None:
    """Find the samples that make a gradient non-finite; None if the samples are not known.

    Each run starts the script again. The samples of a step with several batches are not told apart,
    since the script always takes all of them.

    Raises:
        ConfigError: the script does not come to such a step.
    """
    samples = numbered(batch_size(one) for one in replayed.step.batches)
    if len(replayed.step.batches) > 1 or not samples or not replayed.outcome.broken:
        return None

    def breaks(some: Sequence[tuple[int, int]]) -> bool:
        found = _run(replayed.snapshot, replayed.command, samples=list(some), eager=replayed.eager)
        return bool(found.nonfinite)

    return breaking(samples, breaks, batches=1, inexact=replayed.result.inexact)


def locate(replayed: ScriptReplayed) -> tuple[Located | None, list[str]]:
    """Find the operation that breaks the step; see `vinedresser.replay.stepping.locate`.

    Raises:
        ConfigError: the script does not come to such a step.
    """
    found = _run(replayed.snapshot, replayed.command, locate=True, eager=replayed.eager)
    return found.located, found.inputs


def sample(replayed: ScriptReplayed, number: int, row: int) -> list[SampleTensor]:
    """Return the tensors of one sample; see `vinedresser.replay.stepping.sample`."""
    return sample_of(replayed.step.batches[number], row)


def _run(
    snapshot: Snapshot,
    command: Sequence[str],
    *,
    samples: list[tuple[int, int]] | None = None,
    locate: bool = False,
    eager: bool = False,
) -> ScriptResult:
    """Run the script up to the end of the step.

    Raises:
        ConfigError: it does not come to such a step.
        LaunchError: it does not exist.
    """
    argv = [sys.executable, *command]
    check_command(argv, ".", None)
    place = f"{snapshot.storage.location}/{snapshot.record.KEY}/{snapshot.record.name}"
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as directory:
        settings = ScriptSettings(directory, os.getpid(), place, samples, locate, eager)
        variables = environment_without_run()
        variables |= attach_environment(variables)
        variables[REPLAY_VARIABLE] = settings.to_text()
        log, result = Path(directory, "output"), Path(directory, RESULT)
        with log.open("wb") as output:
            run_bounded(
                argv,
                cwd=".",
                environment=variables,
                output=output,
                timeout=math.inf,
                given_up=lambda: False,
                finished=result.exists,
            )
        found = _read(result, command[0])
        if found.failure:
            text = log.read_bytes()[-_MOST_OUTPUT:].decode(errors="replace")
            last = "".join(f"; it says: {visible(one)}" for one in text.strip().splitlines()[-1:])
            raise ConfigError(f"--script {command[0]}: {found.failure}{last}")
        return found


def _read(place: Path, script: str) -> ScriptResult:
    """Return the result that the process has written, or that it has written none.

    Raises:
        ConfigError: the result cannot be read.
    """
    if not place.exists():
        return ScriptResult(failure="it was killed, or has not imported torch")
    try:
        return ScriptResult.from_json(json.loads(place.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--script {script}: its result cannot be read: {error}") from error
