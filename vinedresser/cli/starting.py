"""`vinedresser init`: files to begin with."""

from __future__ import annotations

from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.errors import ConfigError

__all__ = ["init"]

# Beside this module, so that they are found, read and checked like it.
_STARTERS = files("vinedresser.cli") / "starters"
_SCRIPT = "train.py"


class _Kind(StrEnum):
    EXPERIMENT = "experiment"
    SWEEP = "sweep"


_COMMANDS = {_Kind.EXPERIMENT: "train", _Kind.SWEEP: "sweep"}


def init(
    kind: Annotated[
        _Kind, typer.Argument(metavar="experiment|sweep", help="What to write an example of.")
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where; it is made if need be.")
    ] = Path(),
) -> None:
    """Write an example to begin with, which runs as it is.

    An experiment.toml or a sweep.toml with comments, and a train.py, unless there is one.
    """
    from vinedresser.cli.views.terminal import console, relative

    file = folder / f"{kind}.toml"
    if file.exists():
        raise ConfigError(f"{file}: is there already; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (file, folder / _SCRIPT):
            if not path.exists():
                content = (_STARTERS / path.name).read_text(encoding="utf-8")
                path.write_text(content, encoding="utf-8")
                console.print(f"wrote {relative(path)}", soft_wrap=True, markup=False)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written to: {error.strerror}") from error
    now = f"vinedresser {_COMMANDS[kind]} {relative(file)}"
    console.print(f"now: {now}", soft_wrap=True, markup=False)
