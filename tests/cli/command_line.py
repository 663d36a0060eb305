"""The command line: forked by a process that has loaded what commands load, or by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, STDOUT, CompletedProcess, Popen

from tests.warm_python import COMMANDS

__all__ = ["started_vinedresser", "vinedresser"]


def vinedresser(
    *arguments: str, cwd: Path = Path(), columns: int = 160, code: int | None = None
) -> CompletedProcess[str]:
    """Run a command in a terminal of some columns and return the completed process.

    Raises:
        AssertionError: it ended with another exit code than the given one.
    """
    environment = {**os.environ, "COLUMNS": str(columns)}
    done = COMMANDS.run(["-m", "vinedresser", *arguments], cwd, environment)
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


def started_vinedresser(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None, group: bool = False
) -> Popen[str]:
    """Start a command in an interpreter of its own; its output has 200 columns.

    Args:
        environment: variables beside those of this process.
        group: start it in a session of its own.
    """
    return Popen(
        [sys.executable, "-m", "vinedresser", *arguments],
        cwd=cwd,
        stdout=PIPE,
        stderr=STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200", **(environment or {})},
        start_new_session=group,
    )
