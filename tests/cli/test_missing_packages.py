"""Commands whose optional packages are not installed say in one line what to install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.paths import ROOT
from vinedresser.cli.missing_packages import EXTRAS

# Like a missing package: its import raises ModuleNotFoundError.
BLOCKED = """\
import sys
sys.modules.update(dict.fromkeys({!r}))
from vinedresser.cli import main
main()
"""
SWEEP = ["sweep", str(ROOT / "examples/digits/sweep.toml"), "--store"]
TRAIN = ["train", str(ROOT / "examples/digits/demo.toml"), "--store"]


@pytest.mark.thorough
@pytest.mark.usefixtures("shared_prefect")
@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("optuna", SWEEP, "sweeps"),
        ("prefect", TRAIN, "flows"),
        ("mlflow", TRAIN, "flows"),
        ("boto3", ["show", "s3://bucket/run"], "s3"),
    ],
)
def test_the_extra_is_named(
    package: str,
    command: list[str],
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if package == "prefect":
        # Who has not installed it has no server of it, either.
        monkeypatch.delenv("PREFECT_API_URL")
    store = [str(tmp_path / "runs")] if command[-1] == "--store" else []
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format([package]), *command, *store],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("vinedresser: ")
    assert package in line.lower()
    assert f"vinedresser[{extra}]" in line
    assert "Traceback" not in done.stderr


def test_the_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])
