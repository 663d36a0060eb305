"""Replaying a snapshot of a Keras model in the script that trained it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.errors import ConfigError
from vinedresser.replay.answers import answer_of
from vinedresser.replay.keras_.script.settings import KerasAnswer, KerasScriptSettings, Looks
from vinedresser.replay.results import Bisection, Comparison, Located, SampleTensor
from vinedresser.snapshots.reading import Snapshot
from vinedresser.store.records import REPLAY_KERAS_VARIABLE

__all__ = ["KerasScriptReplayed", "bisect", "locate", "replay", "sample"]


@dataclass(frozen=True)
class KerasScriptReplayed:
    """A snapshot of a Keras model that was run again in the script that trained it.

    Attributes:
        command: the script and its arguments.
        eager: see `replay`.
        outcome: what the script computed.
        notes: what may make the step differ from the recorded one, in words.
    """

    snapshot: Snapshot
    command: list[str]
    eager: bool
    outcome: KerasAnswer
    notes: tuple[str, ...] = ()

    @property
    def comparison(self) -> Comparison:
        """How the step compares with the recorded one."""
        return self.outcome.comparison


def replay(
    snapshot: Snapshot, command: Sequence[str], *, eager: bool = False
) -> KerasScriptReplayed:
    """Run a script up to its training, and the step with the model that it has compiled.

    The script runs in a process of its own, which ends when it calls ``fit`` or ``train_on_batch``
    of the model.

    Args:
        command: path of the Python script, and its arguments as for the training.
        eager: whether graphs and functions of the script are run as they are written.

    Raises:
        ConfigError: the step is that of a custom loop or of several models, or the script does not
            come to such a training.
        CorruptData: the snapshot is damaged.
        LaunchError: the script does not exist.
        StoreError: the storage refused.
    """
    if not snapshot.record.of_own_loop:
        raise ConfigError(
            f"{snapshot.location}: --script needs a step of fit or train_on_batch of one model, "
            "not of a custom loop or of several models; use --factory"
        )
    outcome = _run(snapshot, command, "compare", eager=eager)
    return KerasScriptReplayed(snapshot, list(command), eager, outcome)


def locate(replayed: KerasScriptReplayed) -> tuple[Located | None, list[str]]:
    """Find the operation that breaks the step; see `vinedresser.replay.keras_.stepping.locate`.

    Raises:
        ConfigError: the script does not come to such a training.
    """
    found = _run(replayed.snapshot, replayed.command, "locate", eager=replayed.eager)
    return found.located, found.inputs


def bisect(replayed: KerasScriptReplayed) -> Bisection | None:
    """Find the samples that break the step; None if they are not known.

    Raises:
        ConfigError: the script does not come to such a training.
    """
    return _run(replayed.snapshot, replayed.command, "bisect", eager=replayed.eager).bisection


def sample(replayed: KerasScriptReplayed, number: int, row: int) -> list[SampleTensor]:
    """Return the tensors of one sample that hold numbers.

    Args:
        replayed: the step.
        number: number of its batch.
        row: index of the sample in it.
    """
    # The backend of Keras must be that of the snapshot, which it is in the script by itself.
    os.environ.setdefault("KERAS_BACKEND", str(replayed.snapshot.record.environment["backend"]))
    from vinedresser.replay.keras_.recorded import recorded_step
    from vinedresser.replay.keras_.stepping import sample_of

    return sample_of(recorded_step(replayed.snapshot).batches[number], row)


def _run(snapshot: Snapshot, command: Sequence[str], looks: Looks, *, eager: bool) -> KerasAnswer:
    def told(directory: str) -> str:
        return KerasScriptSettings(directory, os.getpid(), snapshot.place, eager, looks).to_text()

    table = answer_of(command, REPLAY_KERAS_VARIABLE, told, framework="Keras")
    try:
        return KerasAnswer.from_json(table)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--script {command[0]}: its result cannot be read: {error}") from error
