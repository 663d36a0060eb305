"""Run unchanged scripts alone and under `vinedresser run`."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.warm_python import COMMANDS, WarmPython
from vinedresser.store.reading.reader import Run, open_run

__all__ = ["Both", "alone", "alone_in_process", "attached", "both", "split_stderr", "script"]


@dataclass(frozen=True)
class Both:
    """Results of a command alone and under `vinedresser run`."""

    alone: subprocess.CompletedProcess[str]
    attached: subprocess.CompletedProcess[str]
    run: Path

    def open(self, number: int = 1) -> Run:
        """Open the run of the n-th training, counted from 1."""
        return open_run(
            self.run if number == 1 else self.run.with_name(f"{self.run.name}.{number}")
        )


def script(directory: Path, text: str, name: str = "train.py") -> Path:
    """Write a script and return its path."""
    path = directory / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def alone(
    *command: str, cwd: Path, given: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    return subprocess.run(
        command,
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env=_environment(variables),
        timeout=150,
    )


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", **variables}


def alone_in_process(path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script alone in this process, which saves the import of its framework."""
    output = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(output):
        warnings.simplefilter("ignore")
        runpy.run_path(str(path), run_name="__main__")
    return subprocess.CompletedProcess([path.name], 0, output.getvalue(), "")


def attached(
    *command: str,
    cwd: Path,
    options: tuple[str, ...] = (),
    given: str = "",
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command as ``runs/run``, judged only if the options say so."""
    judged = "--rule" in options or "--preset" in options
    rules = options if judged else ("--preset", "none", *options)
    words = ("-m", "vinedresser", "run", "--name", "run", *rules, *command)
    return COMMANDS.run(words, cwd, _environment(variables), given=given)


def both(
    *command: str,
    cwd: Path,
    options: tuple[str, ...] = (),
    given: str = "",
    loaded: WarmPython | None = None,
    **variables: str,
) -> Both:
    """Run a command alone and attached; a Python script is given by its name.

    Args:
        loaded: a process that has loaded what a Python script needs, which it then runs alone.
    """
    program = (sys.executable,) if command[0] == "-m" or command[0].endswith(".py") else ()
    return Both(
        loaded.run(command, cwd, _environment(variables), given=given)
        if loaded
        else alone(*program, *command, cwd=cwd, given=given, **variables),
        attached(*command, cwd=cwd, options=options, given=given, **variables),
        cwd / "runs" / "run",
    )


def split_stderr(stderr: str) -> tuple[str, str]:
    """Split a standard error into the script's part and the final report of vinedresser."""
    place = stderr.rfind("run   step ")
    return stderr[:place], stderr[place:]
