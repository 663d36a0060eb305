"""The command line in a process that is forked by one which has loaded what commands load."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess

from tests.warm_python import COMMANDS

__all__ = ["vinedresser"]


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
