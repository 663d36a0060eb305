"""Unchanged scripts, run by themselves and by `vinedresser run`."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from vinedresser.store.reading.reader import Run, open_run

__all__ = ["Both", "alone", "attached", "both", "ours", "script"]


@dataclass(frozen=True)
class Both:
    """How a command ended by itself, and how under `vinedresser run`."""

    alone: subprocess.CompletedProcess[str]
    attached: subprocess.CompletedProcess[str]
    run: Path

    def open(self, number: int = 1) -> Run:
        """Open the run of the training of a number, from 1."""
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
        env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
        timeout=150,
    )


def attached(
    *command: str,
    cwd: Path,
    options: tuple[str, ...] = (),
    given: str = "",
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command as ``runs/run``."""
    ours = (sys.executable, "-m", "vinedresser", "run", "--name", "run", *options)
    return alone(*ours, *command, cwd=cwd, given=given, **variables)


def both(
    *command: str,
    cwd: Path,
    options: tuple[str, ...] = (),
    given: str = "",
    **variables: str,
) -> Both:
    """Run a command by itself and attached; a Python script is given by its name alone."""
    program = (sys.executable,) if command[0] == "-m" or command[0].endswith(".py") else ()
    return Both(
        alone(*program, *command, cwd=cwd, given=given, **variables),
        attached(*command, cwd=cwd, options=options, given=given, **variables),
        cwd / "runs" / "run",
    )


def ours(stderr: str) -> tuple[str, str]:
    """Divide a standard error into the script's part and ours, which comes last."""
    place = stderr.rfind("run   step ")
    return stderr[:place], stderr[place:]
