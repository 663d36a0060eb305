"""The answer of the process of a script in which a step is run again."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import ConfigError
from vinedresser.infra.supervise.bounded_command import run_bounded
from vinedresser.infra.supervise.launcher import check_command
from vinedresser.plain_text import visible
from vinedresser.store.records import environment_without_run

__all__ = ["Answer", "OutOfTime", "answer_of"]

_RESULT = "replay.json"
# Bytes of the script's output in which its last line is looked for if it fails.
_MOST_OUTPUT = 1 << 14


class OutOfTime(Exception):
    """The script has not come to its result in the time that it had."""


class Answer:
    """What the process answers: the first answer counts.

    Args:
        directory: directory of the result.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def end(self, table: dict[str, Any]) -> NoReturn:
        """Write the result, and end the process at once: nothing else of the script runs."""
        self.write(table)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def write(self, table: dict[str, Any]) -> None:
        """Write the result, plain JSON types; "failure" says why there is none."""
        place = Path(self._directory, _RESULT)
        beside = place.with_suffix(".part")
        beside.write_text(json.dumps(table), encoding="utf-8")
        beside.rename(place)


def answer_of(
    command: Sequence[str],
    variable: str,
    told: Callable[[str], str],
    *,
    framework: str,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Run a script until it has answered.

    Args:
        command: path of the script, and its arguments.
        variable: environment variable that tells the process what to do.
        told: returns its value for a directory of the result.
        framework: what the script must import.
        seconds: time for all of it; None: any.

    Raises:
        ConfigError: it does not answer, or says why it cannot.
        LaunchError: it does not exist.
        OutOfTime: it has not answered in the time.
    """
    argv = [sys.executable, *command]
    check_command(argv, ".", None)
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as directory:
        variables = environment_without_run()
        variables |= attach_environment(variables)
        variables[variable] = told(directory)
        log, result = Path(directory, "output"), Path(directory, _RESULT)
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
        table = _read(result, command[0], framework)
        if table.get("failure"):
            text = log.read_bytes()[-_MOST_OUTPUT:].decode(errors="replace")
            last = "".join(f"; it says: {visible(line)}" for line in text.strip().splitlines()[-1:])
            raise ConfigError(f"--script {command[0]}: {table['failure']}{last}")
        return table


def _read(place: Path, script: str, framework: str) -> dict[str, Any]:
    """Return the result that the process has written, or that it has written none."""
    if not place.exists():
        return {"failure": f"it was killed, or has not imported {framework}"}
    try:
        return dict(json.loads(place.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--script {script}: its result cannot be read: {error}") from error
