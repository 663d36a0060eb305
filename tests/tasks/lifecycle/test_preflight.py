"""The checks before a training: what a run keeps of them, and what they stop."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.explain.reports.pages import Page, stopped_run
from tests.preflight.trainings import script
from vinedresser.errors import LaunchError
from vinedresser.explain.reports.report import write_report
from vinedresser.infra.supervise.launcher import prepare_run, request_stop
from vinedresser.objects import LocalStorage
from vinedresser.preflight.record import PreflightRecord
from vinedresser.processes import this_process
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    new_run,
    read_record,
    write_record,
)
from vinedresser.tasks.lifecycle.end_tags import end_tags
from vinedresser.tasks.lifecycle.judging import rules_key
from vinedresser.tasks.lifecycle.run_result import run_result
from vinedresser.tasks.lifecycle.supervision import Attendance, Stages, supervise
from vinedresser.tasks.places.run_place import RunPlace

HOSTILE = "<script>alert(1)</script> \x1b[2J"
CHECKED = PreflightRecord(
    steps=50,
    seconds=6.0,
    code=0,
    verdicts=[
        {"check": "finite", "state": "fine", "evidence": "losses of 50 steps"},
        {"check": "clearing", "state": "suspicious", "evidence": f"added to {HOSTILE}"},
    ],
)


def place_of(directory: Path, text: str, *arguments: str) -> RunPlace:
    """Prepare the run of a script."""
    (directory / "train.py").write_text(text, encoding="utf-8")
    argv = [sys.executable, "train.py", *arguments]
    launch = LaunchRecord(argv, str(directory), owner=asdict(this_process()))
    prepare_run(directory / "run", new_run("run"), launch)
    return RunPlace(directory / "run")


def test_report_and_tags_show_what_was_suspicious(tmp_path: Path) -> None:
    run = stopped_run(tmp_path / "run")
    write_record(run.storage, CHECKED)
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "Pre-flight 1 suspicious of 2 checks: clearing" in page.text
    assert f"clearing suspicious added to {HOSTILE.split(maxsplit=1)[0]}" in page.text
    end = read_record(run.storage, ExitRecord)
    assert end is not None
    tags = end_tags(run, end)
    assert tags["preflight"] == "1 suspicious of 2 checks: clearing"
    words = str(tags["mlflow.note.content"])
    assert "**clearing** suspicious before the training: added to \\<script\\>" in words
    assert "\x1b" not in words
    assert run_result(tmp_path / "run").preflight == CHECKED


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "not checked: the script ended with exit code 3"),
        (0, "not checked: no training of PyTorch or Keras was seen"),
        (None, "not checked: no training of PyTorch or Keras was seen"),
    ],
)
def test_a_run_says_why_it_was_not_checked(code: int | None, words: str) -> None:
    assert PreflightRecord(0, 1.0, code, []).summary == words


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    run = stopped_run(tmp_path / "run")
    run.storage.put(
        PreflightRecord.KEY, [b'{"steps": 1, "seconds": 1, "code": 0, "verdicts": [3]}']
    )
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "preflight.json: not a valid PreflightRecord" in page.text
    assert any("preflight.json" in problem for problem in run_result(tmp_path / "run").problems)


def test_a_run_that_cannot_be_checked_trains_and_the_error_is_told(tmp_path: Path) -> None:
    place = place_of(tmp_path, "open('trained', 'w').close()")

    def fail(_: RunPlace, strict: bool) -> None:
        raise LaunchError(f"no check, strict {strict}")

    attendance = Attendance(record=False, additional=False, preflight=True)
    errors = supervise(place, attendance, Stages(check=fail))
    assert [str(error) for error in errors] == ["no check, strict False"]
    assert (tmp_path / "trained").exists()
    assert open_run(tmp_path / "run").status.state == "finished"


@pytest.mark.thorough
def test_the_script_gets_values_that_no_record_has(tmp_path: Path) -> None:
    """A masked argument reaches the check, and then the training; neither trains anything."""
    text = "import sys; open(sys.argv[2], 'a').write('once ')"
    place = place_of(tmp_path, text, "--api-key", "hidden")
    assert "hidden" not in (tmp_path / "run" / "launch.json").read_text(encoding="utf-8")
    attendance = Attendance(record=False, additional=False, preflight="strict")
    assert supervise(place, attendance, Stages()) == []
    assert (tmp_path / "hidden").read_text(encoding="utf-8") == "once once "
    found = read_record(LocalStorage(tmp_path / "run"), PreflightRecord)
    assert found is not None
    assert found.summary == "not checked: no training of PyTorch or Keras was seen"


def test_a_run_asked_to_stop_is_not_checked_to_the_end(tmp_path: Path) -> None:
    place = place_of(tmp_path, "import time; time.sleep(600)")
    request_stop(tmp_path / "run", reason="enough")
    attendance = Attendance(record=False, additional=False, preflight=True)
    assert supervise(place, attendance, Stages()) == []
    status = open_run(tmp_path / "run").status
    assert (status.state, status.by) == ("stopped", "person")
    assert read_record(LocalStorage(tmp_path / "run"), PreflightRecord) is None


@pytest.mark.thorough
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.usefixtures("shared_prefect")
def test_a_suspicion_stops_a_training_only_if_asked(tmp_path: Path, strict: bool) -> None:
    text = script(clear="pass").replace("range(100)", "range(2)")
    place = place_of(tmp_path, text)
    # The rules of the run judge its trial, too; one that is not built in is left to its judge.
    rules: dict[str, Any] = {"rules": {"gradients_not_cleared": {}, "own.py:Custom": {}}}
    LocalStorage(place.directory).put(rules_key("default"), [json.dumps(rules).encode()])
    attendance = Attendance(record=False, additional=False, preflight="strict" if strict else True)
    assert supervise(place, attendance, Stages()) == []
    run = open_run(tmp_path / "run")
    found = read_record(run.storage, PreflightRecord)
    assert found is not None
    assert "gradients_not_cleared" in [one.check for one in found.suspicious]
    if strict:
        assert (run.status.state, run.status.rule) == ("stopped", "preflight")
        assert run.status.reason.startswith("gradients_not_cleared: ")
        assert not (tmp_path / "run" / "log.txt").exists()
    else:
        assert run.status.state == "finished"
        log = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
        assert len(log.splitlines()) == 58, "two epochs of 29 batches"
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert 'id="preflight"' in report
