"""A training function is called in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vinedresser.infra.entry import parameters_as_arguments

MODULE = """
import json, sys

def main(lr, hidden_units=3, act="relu", nesterov=False, resume=None):
    print(json.dumps([lr, hidden_units, act, nesterov, resume, sys.argv, __name__]))

def broken():
    import nothing_of_this_name

number = 3
"""


def call(folder: Path, target: str, parameters: dict[str, Any]) -> tuple[int, str]:
    """Call a function; return the exit code and the output."""
    (folder / "package").mkdir(exist_ok=True)
    (folder / "package" / "training.py").write_text(MODULE, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "vinedresser.infra.entry", target),
            *parameters_as_arguments(parameters),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_parameters_keep_their_types(tmp_path: Path) -> None:
    given = {"lr": 1e-3, "hidden-units": 7, "act": "a=b c", "nesterov": True}
    code, output = call(tmp_path, "package.training:main", given)
    assert code == 0, output
    said = '[0.001, 7, "a=b c", true, null, ["package.training:main"], "package.training"]'
    assert output.strip() == said


@pytest.mark.parametrize(
    ("target", "parameters", "said"),
    [
        ("package.training:main", {"rate": 1}, "cannot be called with rate: missing a required"),
        ("package.training:main", {"lr": 1, "rate": 1}, "unexpected keyword argument 'rate'"),
        ("package.training:mian", {"lr": 1}, "training.py has no function mian"),
        ("package.training:number", {}, "training.py has no function number"),
        ("package.trianing:main", {}, "no module package.trianing in "),
        ("package.training:broken", {}, "No module named 'nothing_of_this_name'"),
    ],
)
def test_an_entry_that_cannot_be_called_is_named(
    tmp_path: Path, target: str, parameters: dict[str, Any], said: str
) -> None:
    code, output = call(tmp_path, target, parameters)
    assert code == 1
    assert said in output
