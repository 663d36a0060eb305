"""Commands and options match cli_options.txt, and each has a help text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperArgument, TyperGroup, TyperOption

from tests.paths import ROOT
from vinedresser.cli import main
from vinedresser.cli.application import app

HERE = Path(__file__).parent
GROUP = typer.main.get_command(app)
assert isinstance(GROUP, TyperGroup)


def commands(group: TyperGroup, before: str = "") -> dict[str, Any]:
    """Return a group and its commands, including nested ones, by their words."""
    found: dict[str, Any] = {before: group}
    for name, command in group.commands.items():
        words = f"{before} {name}".strip()
        found |= commands(command, words) if isinstance(command, TyperGroup) else {words: command}
    return found


COMMANDS = commands(GROUP)


def frozen_lines() -> Iterator[str]:
    """Yield a line for each argument and option, and for each command without any."""
    for name, command in COMMANDS.items():
        lines = [parameter_line(parameter) for parameter in command.params]
        yield from (f"vinedresser {name} {line}".replace("  ", " ") for line in lines or [""])


def parameter_line(parameter: object) -> str:
    """Return how a parameter is written on the command line."""
    if isinstance(parameter, TyperArgument):
        return str(parameter.metavar) if parameter.required else f"[{parameter.metavar}]"
    assert isinstance(parameter, TyperOption)
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def test_commands_and_options_are_frozen() -> None:
    frozen = (HERE / "cli_options.txt").read_text(encoding="utf-8").splitlines()
    # Who depends on an option notices when it goes: a change belongs into CHANGELOG.md too.
    assert list(frozen_lines()) == frozen


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_has_a_help_text(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name])
def test_every_command_is_in_the_list_of_commands(name: str) -> None:
    assert f"`vinedresser {name}" in (ROOT / "docs/commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_a_renamed_option_names_the_new_one(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["vinedresser", command, "x.toml", "--at-once", "2"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "vinedresser: --at-once: renamed to --max-concurrent\n"
