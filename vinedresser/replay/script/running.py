"""Running the script that trained up to the end of a recorded step, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence

from vinedresser.errors import ConfigError
from vinedresser.replay.answers import answer_of
from vinedresser.replay.script.settings import ScriptResult, ScriptSettings, TrialSettings
from vinedresser.snapshots.reading import Snapshot
from vinedresser.store.records import REPLAY_VARIABLE


def run_script(
    snapshot: Snapshot,
    command: Sequence[str],
    *,
    samples: list[tuple[int, int]] | None = None,
    locate: bool = False,
    eager: bool = False,
    dtype: str = "",
    trial: TrialSettings | None = None,
    seconds: float | None = None,
) -> ScriptResult:
    """Run the script up to the end of the step.

    Args:
        command: path of the script, and its arguments.
        samples: see `ScriptSettings`.
        locate: see `ScriptSettings`.
        eager: see `ScriptSettings`.
        dtype: see `ScriptSettings`.
        trial: see `ScriptSettings`.
        seconds: time for all of it; None: any.

    Raises:
        ConfigError: it does not come to such a step.
        LaunchError: it does not exist.
        OutOfTime: it has not come to it in the time.
    """

    def told(directory: str) -> str:
        place = snapshot.place
        return ScriptSettings(
            directory, os.getpid(), place, samples, locate, eager, dtype, trial
        ).to_text()

    table = answer_of(command, REPLAY_VARIABLE, told, framework="torch", seconds=seconds)
    try:
        return ScriptResult.from_json(table)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--script {command[0]}: its result cannot be read: {error}") from error
