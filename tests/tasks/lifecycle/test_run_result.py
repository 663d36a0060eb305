"""The result of a run, as tables of runs show it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from vinedresser.tasks.lifecycle.run_result import run_result
from vinedresser.testing.runs import make_run, step_record


@pytest.mark.thorough
def test_a_copy_has_the_name_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "store" / "a", [step_record(0, scalars={"losses/loss": 1.0})])
    shutil.copytree(tmp_path / "store" / "a", tmp_path / "store" / "b")
    names = [run_result(tmp_path / "store" / name).name for name in ("a", "b")]
    assert names == ["a", "b"]
    monkeypatch.chdir(tmp_path / "store" / "b")
    assert run_result(Path()).name == "b"
    assert vinedresser("show", ".", cwd=Path()).stdout.startswith("b ")
    listed = vinedresser("status", "..", cwd=Path()).stdout.splitlines()[1:3]
    assert [line.split()[0] for line in listed] == names
