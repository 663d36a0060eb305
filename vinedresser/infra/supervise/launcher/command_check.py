"""Check a command before it is started."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from vinedresser.errors import LaunchError

_PYTHON = re.compile(r"(python|pypy)[\d.]*")
# Python's options that take the next argument as their value.
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def check_command(
    argv: Sequence[str], cwd: str | os.PathLike[str], environment: Mapping[str, str] | None = None
) -> None:
    """Check that a command can probably be started.

    Args:
        argv: program and arguments.
        cwd: directory in which it starts.
        environment: variables added to the inherited ones; its PATH is searched.

    Raises:
        LaunchError: the directory, the program or its Python script does not exist, or the program
            is not executable, or is a notebook; the message names it.
    """
    if not argv:
        raise LaunchError("empty command; give a program and its arguments")
    if argv[0].endswith(".ipynb"):
        raise LaunchError(
            f"{argv[0]}: a notebook is not a program; execute it by jupyter execute {argv[0]}, or "
            "create a Hook in its cells"
        )
    if not Path(cwd).is_dir():
        raise LaunchError(f"{cwd}: no such directory to start {argv[0]} in")
    _check_program(argv[0], Path(cwd), {**os.environ, **(environment or {})})
    script = _python_script(argv)
    if script is not None and not Path(cwd, script).exists():
        raise LaunchError(f"{Path(cwd, script)}: no such script")


def _check_program(program: str, cwd: Path, environment: Mapping[str, str]) -> None:
    if "/" not in program:
        if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
            beside = f'; to run the file, write "./{program}"' if (cwd / program).is_file() else ""
            raise LaunchError(f"{program}: no such program on PATH{beside}")
        return
    path = cwd / program
    if not path.is_file():
        raise LaunchError(f"{path}: no such program")
    if not os.access(path, os.X_OK):
        raise LaunchError(
            f"{path}: not executable; set its permission, or name its interpreter first"
        )


def _python_script(argv: Sequence[str]) -> str | None:
    """Return the script of a Python command; None for other programs, modules, code and stdin."""
    if not _PYTHON.fullmatch(Path(argv[0]).name):
        return None
    arguments = iter(argv[1:])
    for argument in arguments:
        if not argument.startswith("-"):
            return argument
        if argument == "-" or re.match(r"-[a-zA-Z]*[cm]", argument):
            return None
        if argument in _WITH_VALUE:
            next(arguments, None)
    return None
