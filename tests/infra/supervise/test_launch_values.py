"""Secrets reach the program of a run, and none of its records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vinedresser.errors import LaunchError
from vinedresser.infra.supervise.launcher import prepare_run, start
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, LaunchRecord, new_run, read_record

PRINTS = "import os, sys; print(sys.argv[1:], os.environ['HF_TOKEN'], os.environ['PLAIN'])"


def test_a_secret_reaches_the_program_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIN", "from the starter")
    script = tmp_path / "print.py"
    script.write_text(PRINTS)
    launch = LaunchRecord(
        [sys.executable, "-S", str(script), "--api_key", "correct-horse"],
        str(tmp_path),
        environment={"HF_TOKEN": "battery-staple"},
        environment_from=["PLAIN"],
    )
    directory = tmp_path / "run"
    prepare_run(directory, new_run("run", {"api_key": "correct-horse"}), launch)
    start(directory).wait()
    log = (directory / "log.txt").read_text()
    assert log == "['--api_key', 'correct-horse'] battery-staple from the starter\n"
    (directory / "log.txt").unlink()
    kept = "".join(path.read_text() for path in directory.rglob("*") if path.is_file())
    assert "finished" in kept
    for value in ("correct-horse", "battery-staple", "from the starter"):
        assert value not in kept


def test_a_run_whose_values_are_with_another_process_is_not_started(tmp_path: Path) -> None:
    code = (
        "import sys; from vinedresser.infra.supervise.launcher import prepare_run; "
        "from vinedresser.store.records import LaunchRecord, new_run; "
        "prepare_run(sys.argv[1], new_run('run'), LaunchRecord(['true', '--api-key', 'x'], '.'))"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "run"], check=True)
    with pytest.raises(LaunchError, match=r"look like secrets; .* run\.environment_from"):
        start(tmp_path / "run")


def test_a_missing_variable_ends_the_run_before_its_program_starts(tmp_path: Path) -> None:
    launch = LaunchRecord(["true"], str(tmp_path), environment_from=["NOT_SET_HERE"])
    prepare_run(tmp_path / "run", new_run("run"), launch)
    with pytest.raises(LaunchError, match="NOT_SET_HERE is not set where the training starts"):
        start(tmp_path / "run")
    record = read_record(LocalStorage(tmp_path / "run"), ExitRecord)
    assert record is not None
    assert record.cause == "crashed"
