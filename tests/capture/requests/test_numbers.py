"""Options take no numbers that a clock does not understand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.tasks.config.run_spec import RunTable

COMMANDS = {
    "set": ("set", "run", "lr=1", "--timeout"),
    "capture": ("capture", "run", "weights", "--every", "1", "--timeout"),
    "check": ("check", "--timeout"),
    "ask": ("ask", "run", "loss", "--rate"),
}
BAD = {"set": "nan", "capture": "-1", "check": "inf", "ask": "inf"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_a_number_that_no_clock_understands_is_refused_in_one_line(
    tmp_path: Path, name: str
) -> None:
    script = ("train.py",) if name == "check" else ()
    done = vinedresser(*COMMANDS[name], BAD[name], *script, cwd=tmp_path)
    assert done.returncode == 2
    option = COMMANDS[name][-1]
    told = f"vinedresser: {option} {BAD[name]}: must be a number from 0 to 1,000,000,000"
    assert done.stderr.splitlines() == [told]


@pytest.mark.parametrize("grace", [float("nan"), float("inf"), -1.0])
def test_a_time_of_grace_is_finite(grace: float) -> None:
    with pytest.raises(ConfigError, match=r"^run(: |\.)grace: must be "):
        build(RunTable, {"name": "a", "command": ["x"], "grace": grace}, "run")
