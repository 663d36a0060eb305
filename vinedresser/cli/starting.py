"""`vinedresser init`: write an example to start from."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.errors import ConfigError
from vinedresser.plain_text import visible

# Inside the package, where linters and type checkers see them.
_STARTERS = files("vinedresser.cli") / "starters"


class _Kind(StrEnum):
    EXPERIMENT = "experiment"
    SWEEP = "sweep"
    PRUNE = "prune"
    MONITOR = "monitor"
    EXPECT = "expect"


# The command that runs each, and the script that it needs.
_COMMANDS = {
    _Kind.EXPERIMENT: "train",
    _Kind.SWEEP: "sweep",
    _Kind.PRUNE: "prune",
    _Kind.MONITOR: "monitor",
}
_SCRIPTS = {
    _Kind.EXPERIMENT: "train.py",
    _Kind.SWEEP: "train.py",
    _Kind.PRUNE: "pruning.py",
    _Kind.MONITOR: "service.py",
}


def init(
    kind: Annotated[
        _Kind,
        typer.Argument(metavar="experiment|sweep|prune|monitor|expect", help="Kind of example."),
    ],
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Directory, created if missing, or the run."),
    ] = Path(),
) -> None:
    """Write a runnable example to start from.

    Writes a commented experiment.toml, sweep.toml, prune.toml or monitor.toml, and the script that
    it names unless one exists. With expect, print expectations that a good run suggests, for any of
    these files.
    """
    from vinedresser.cli.views.console import console, relative

    if kind is _Kind.EXPECT:
        _print_expectations(folder)
        return
    file = folder / f"{kind}.toml"
    if file.exists():
        raise ConfigError(f"{file}: already exists; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (file, folder / _SCRIPTS[kind]):
            if not path.exists():
                content = (_STARTERS / path.name).read_text(encoding="utf-8")
                path.write_text(content, encoding="utf-8")
                console.print(f"wrote {relative(path)}", soft_wrap=True)
            elif path.read_bytes() != (_STARTERS / path.name).read_bytes():
                console.print(
                    f"left {relative(path)} as it is: make {file.name} fit it", soft_wrap=True
                )
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from error
    command = f"vinedresser {_COMMANDS[kind]} {relative(file)}"
    if kind is _Kind.MONITOR:
        # There is nothing to judge before the service has answered requests.
        command = f"python {relative(folder / _SCRIPTS[kind])} && {command}"
    console.print(f"next: {command}", soft_wrap=True)


def _print_expectations(path: Path) -> None:
    """Print the table ``[expect]`` that a good run suggests, as TOML for a file."""
    from vinedresser.explain.proposing import proposed_expectations
    from vinedresser.objects import parse_location
    from vinedresser.store.reading.reader import open_run

    lines = proposed_expectations(open_run(parse_location(path)))
    said = (f"    {json.dumps(line)}," for line in lines)
    for line in ("[expect]", "lines = [", *said, "]"):
        typer.echo(visible(line))
