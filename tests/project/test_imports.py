"""Imports go downward only, and what is started often loads little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

HEAVY = {
    "boto3",
    "keras",
    "matplotlib",
    "mlflow",
    "pandas",
    "prefect",
    "pydantic",
    "scipy",
    "sklearn",
    "tensorflow",
    "torch",
    "xgboost",
}


def packages_after(code: str) -> set[str]:
    """Return the top-level packages that a fresh interpreter has loaded when it has run code."""
    probe = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", probe + code],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return {name.partition(".")[0] for name in result.stderr.split()}


def foreign_packages_after(code: str) -> set[str]:
    """Return those of `packages_after` that are neither ours nor the standard library's."""
    # What .pth files of the environment load in every interpreter is not our doing.
    ours = set(sys.stdlib_module_names) | packages_after("") | {"vinedresser"}
    return packages_after(code) - ours


def test_layers() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [linter, "--no-cache"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("layer", ["capture", "rules"])
def test_a_layer_that_sits_in_trainings_loads_numpy_and_crc_only(layer: str) -> None:
    assert foreign_packages_after(f"import vinedresser.{layer}") <= {"numpy", "fastcrc"}


@pytest.mark.parametrize("module", ["vinedresser", "vinedresser.infra.supervisor.__main__"])
def test_what_runs_beside_every_training_loads_the_standard_library_only(module: str) -> None:
    assert foreign_packages_after(f"import {module}") == set()


def test_help_loads_nothing_heavy() -> None:
    code = "sys.argv = ['vinedresser', '--help']\nfrom vinedresser.cli import main\nmain()"
    assert packages_after(code) & HEAVY == set()
