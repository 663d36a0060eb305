"""Frequently started processes import little."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    """Return the top-level packages that code loads in a fresh interpreter."""
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
    """Return those of `packages_after` outside vinedresser and the standard library."""
    # The .pth files of the environment load some packages in every interpreter.
    ours = set(sys.stdlib_module_names) | packages_after("") | {"vinedresser"}
    return packages_after(code) - ours


@pytest.mark.parametrize("layer", ["capture", "rules"])
def test_a_layer_inside_trainings_loads_only_numpy_and_crc(layer: str) -> None:
    assert foreign_packages_after(f"import vinedresser.{layer}") <= {"numpy", "fastcrc"}


@pytest.mark.parametrize(
    "module", ["vinedresser", "vinedresser.infra.supervise.supervisor.__main__"]
)
def test_processes_beside_trainings_load_only_the_standard_library(module: str) -> None:
    assert foreign_packages_after(f"import {module}") == set()


def test_help_loads_nothing_heavy() -> None:
    assert packages_after(command("--help")) & HEAVY == set()


@pytest.mark.thorough
def test_status_loads_nothing_heavy() -> None:
    # typer converts arguments with pydantic.
    assert packages_after(command("status", ".")) & HEAVY <= {"pydantic"}


def command(*arguments: str) -> str:
    """Return code that runs the command line."""
    return f"sys.argv[1:] = {[*arguments]}\nfrom vinedresser.cli import main\nmain()"
