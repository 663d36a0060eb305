"""Running the script that trained up to the end of a recorded step, in a process of its own."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import ConfigError
from vinedresser.infra.bounded_command import run_bounded
from vinedresser.infra.launcher import check_command
from vinedresser.plain_text import visible
from vinedresser.replay.script.settings import RESULT, ScriptResult, ScriptSettings, TrialSettings
from vinedresser.snapshots.reading import Snapshot
from vinedresser.store.records import REPLAY_VARIABLE, environment_without_run

__all__ = ["OutOfTime", "run_script"]

# Bytes of the script's output in which its last line is looked for if it fails.
_MOST_OUTPUT = 1 << 14


class OutOfTime(Exception):
    """The script has not come to its result in the time that it had."""


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
        snapshot: the snapshot.
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
    argv = [sys.executable, *command]
    check_command(argv, ".", None)
    place = f"{snapshot.storage.location}/{snapshot.record.KEY}/{snapshot.record.name}"
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as directory:
        settings = ScriptSettings(
            directory, os.getpid(), place, samples, locate, eager, dtype, trial
        )
        variables = environment_without_run()
        variables |= attach_environment(variables)
        variables[REPLAY_VARIABLE] = settings.to_text()
        log, result = Path(directory, "output"), Path(directory, RESULT)
        with log.open("wb") as output:
            code = run_bounded(
                argv,
                cwd=".",
                environment=variables,
                output=output,
                timeout=math.inf if seconds is None else seconds,
                given_up=lambda: False,
                finished=result.exists,
            )
        if code is None and not result.exists():
            raise OutOfTime
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
