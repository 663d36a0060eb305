"""Running a script for a pre-flight check, and ending it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import LaunchError
from vinedresser.infra.supervise.bounded_command import run_bounded
from vinedresser.infra.supervise.launcher import check_command
from vinedresser.preflight.settings import RESULT, PreflightSettings
from vinedresser.preflight.trial_run import TrialRun
from vinedresser.preflight.verdict import Verdict
from vinedresser.rules.presets import preset_table
from vinedresser.store.records import (
    PREFLIGHT_VARIABLE,
    RUN_VARIABLE,
    RunRecord,
    environment_without_run,
    new_run,
)

__all__ = ["Preflight", "Watched", "check_program", "check_script", "read_result"]

_MOST_OUTPUT = 1 << 14


@dataclass(frozen=True)
class Preflight:
    """The result of a pre-flight check.

    Attributes:
        steps: number of steps that were watched; 0 if there was no training.
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
    steps: int | None = None,
    seconds: float = 15.0,
    timeout: float = 300.0,
    skip: Sequence[str] = (),
) -> Preflight:
    """Run the first steps of a script, check them, and end it.

    All rules judge them, as in `vinedresser run`.

    Args:
        command: a Python script, or ``-m`` and a module, or a program, with its arguments.
        steps: maximum number of steps that are watched; None: 50, and with batches of fewer than 8
            samples as many as see 400, up to 400.
        seconds: CPU seconds from the first call of a model.
        timeout: seconds after which the script is ended in any case.
        skip: names of checks that are left out.

    Raises:
        LaunchError: the script or program does not exist, or the result cannot be read.
    """
    first = command[0]
    program = [sys.executable] if first == "-m" or first.endswith(".py") else []
    argv = [*program, *command]
    return check_program(
        argv,
        new_run("trial"),
        preset_table("advisory"),
        steps=steps,
        seconds=seconds,
        timeout=timeout,
        skip=skip,
    )


def check_program(
    argv: Sequence[str],
    record: RunRecord,
    rules: Mapping[str, Mapping[str, Any]],
    *,
    cwd: str | os.PathLike[str] = ".",
    environment: Mapping[str, str] | None = None,
    given_up: Callable[[], bool] = lambda: False,
    steps: int | None = None,
    seconds: float = 15.0,
    timeout: float = 300.0,
    skip: Sequence[str] = (),
) -> Preflight:
    """Run the first steps of a program, check them, and end it.

    Args:
        record: record of the run of which these are the first steps.
        rules: settings of the rules that judge them, by name.
        cwd: directory in which it starts.
        environment: variables added to the inherited ones.
        given_up: returns True to end it early.
        steps: see `check_script`.
        seconds: see `check_script`.
        timeout: see `check_script`.
        skip: see `check_script`.

    Raises:
        ConfigError: an unknown rule, or an invalid setting of a rule.
        LaunchError: the program does not exist, or the result cannot be read.
        StoreError: a temporary directory cannot be read or written.
    """
    check_command(argv, cwd, environment)
    variables = {**environment_without_run(), **(environment or {})}
    variables |= attach_environment(variables)
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as directory:
        settings = PreflightSettings(directory, steps, seconds, tuple(skip))
        trial = TrialRun(Path(directory, "run"), record, rules, skip)
        variables[PREFLIGHT_VARIABLE] = settings.to_text()
        variables[RUN_VARIABLE] = str(trial.directory)
        before = _seconds()
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
        seen = read_result(result)
        verdicts = [] if seen is None else [*trial.verdicts(code, cut=seen.cut), *seen.verdicts]
        text = log.read_bytes()[-_MOST_OUTPUT:].decode(errors="replace")
        return Preflight(
            0 if seen is None else seen.steps, verdicts, code, text, _seconds() - before
        )


class Watched(NamedTuple):
    """What the process of a script has found.

    Attributes:
        steps: number of steps that were watched.
        cut: whether the check ended the training, which would have continued.
        verdicts: the verdict of each probe.
    """

    steps: int
    cut: bool
    verdicts: list[Verdict]


def read_result(place: Path) -> Watched | None:
    """Return what is in the file of a script's process; None if it does not exist.

    Raises:
        LaunchError: the result cannot be read.
    """
    if not place.exists():
        return None
    try:
        table: Any = json.loads(place.read_text(encoding="utf-8"))
        verdicts = [Verdict.from_json(one) for one in table["verdicts"]]
        return Watched(int(table["steps"]), bool(table["cut"]), verdicts)
    except (ValueError, KeyError, TypeError) as error:
        raise LaunchError(f"the result of the checks cannot be read: {error}") from error


def _seconds() -> float:
    """Return the CPU seconds of the scripts so far, and of this thread, which judges them."""
    times = os.times()
    return times.children_user + times.children_system + time.thread_time()
