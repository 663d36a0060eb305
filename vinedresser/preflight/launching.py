"""Running a script for a pre-flight check, and ending it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import LaunchError
from vinedresser.infra.bounded_command import run_bounded
from vinedresser.infra.launcher import check_command
from vinedresser.preflight.settings import RESULT, PreflightSettings
from vinedresser.preflight.verdict import Verdict
from vinedresser.store.records import PREFLIGHT_VARIABLE, environment_without_run

__all__ = ["Preflight", "check_program", "check_script", "read_result"]

_MOST_OUTPUT = 1 << 14


@dataclass(frozen=True)
class Preflight:
    """The result of a pre-flight check.

    Attributes:
        steps: number of steps that were watched; 0 if there was no training.
        verdicts: the verdict of each check.
        code: exit code of the script; None if it was ended.
        output: the last output of the script.
        seconds: CPU seconds of the script and the checks.
    """

    steps: int
    verdicts: list[Verdict]
    code: int | None
    output: str
    seconds: float


def check_script(
    command: Sequence[str],
    *,
    steps: int = 50,
    seconds: float = 15.0,
    timeout: float = 300.0,
    skip: Sequence[str] = (),
) -> Preflight:
    """Run the first steps of a script, check them, and end it.

    Args:
        command: a Python script, or ``-m`` and a module, or a program, with its arguments.
        steps: maximum number of steps that are watched.
        seconds: CPU seconds from the first call of a model.
        timeout: seconds after which the script is ended in any case.
        skip: names of checks that are left out.

    Raises:
        LaunchError: the script or program does not exist, or the result cannot be read.
    """
    first = command[0]
    program = [sys.executable] if first == "-m" or first.endswith(".py") else []
    argv = [*program, *command]
    return check_program(argv, steps=steps, seconds=seconds, timeout=timeout, skip=skip)


def check_program(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] = ".",
    environment: Mapping[str, str] | None = None,
    given_up: Callable[[], bool] = lambda: False,
    steps: int = 50,
    seconds: float = 15.0,
    timeout: float = 300.0,
    skip: Sequence[str] = (),
) -> Preflight:
    """Run the first steps of a program, check them, and end it.

    Args:
        argv: program and arguments.
        cwd: directory in which it starts.
        environment: variables added to the inherited ones.
        given_up: returns True to end it early.
        steps: see `check_script`.
        seconds: see `check_script`.
        timeout: see `check_script`.
        skip: see `check_script`.

    Raises:
        LaunchError: the program does not exist, or the result cannot be read.
    """
    check_command(argv, cwd, environment)
    variables = {**environment_without_run(), **(environment or {})}
    variables |= attach_environment(variables)
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as directory:
        settings = PreflightSettings(directory, steps, seconds, tuple(skip))
        variables[PREFLIGHT_VARIABLE] = settings.to_text()
        before = _children_seconds()
        log, result = Path(directory, "output"), Path(directory, RESULT)
        with log.open("wb") as output:
            code = run_bounded(
                argv,
                cwd=cwd,
                environment=variables,
                output=output,
                timeout=timeout,
                given_up=given_up,
                finished=result.exists,
            )
        found, verdicts = read_result(result)
        text = log.read_bytes()[-_MOST_OUTPUT:].decode(errors="replace")
        return Preflight(found, verdicts, code, text, _children_seconds() - before)


def read_result(place: Path) -> tuple[int, list[Verdict]]:
    """Return the number of steps and the verdicts of a file; 0 and none if it does not exist.

    Raises:
        LaunchError: the result cannot be read.
    """
    if not place.exists():
        return 0, []
    try:
        table: Any = json.loads(place.read_text(encoding="utf-8"))
        return int(table["steps"]), [Verdict.from_json(one) for one in table["verdicts"]]
    except (ValueError, KeyError, TypeError) as error:
        raise LaunchError(f"the result of the checks cannot be read: {error}") from error


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system
