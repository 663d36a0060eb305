"""Judging live and judging afterwards give the same findings."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.rules.runs import RunStore
from tests.rules.trainings import trained
from tests.warm_python import TORCH
from vinedresser.errors import NotARun
from vinedresser.objects import LocalStorage
from vinedresser.rules.base import Rule
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import StopRecord, read_record, write_record
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, make_run, start_run, step_record

TRAININGS = ROOT / "tests/rules/trainings.py"


def all_rules() -> list[Rule]:
    return [kind() for kind in RULES.values()]


def judge_when_begun(
    directory: Path, poll: float, *, live: bool, found: list[Finding]
) -> threading.Thread:
    """Judge in a separate thread, as soon as the run exists."""

    def run() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                opened = open_run(directory)
            except NotARun:
                time.sleep(0.01)
                continue
            judge(opened, all_rules(), live=live, on_finding=found.append, poll=poll)
            return

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.thorough
@pytest.mark.parametrize("name", [pytest.param("vanishing", marks=pytest.mark.slow), "nan_log"])
def test_the_findings_are_the_same_live_and_afterwards(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    live: list[list[Finding]] = [[], [], []]
    threads = [
        judge_when_begun(directory, poll, live=False, found=found)
        for poll, found in zip((0.0, 0.02, 0.7), live, strict=True)
    ]
    words = [str(TRAININGS), name, str(directory)]
    done = TORCH.run(words, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    for thread in threads:
        thread.join(30)
    afterwards = judge(open_run(directory), all_rules())
    assert len(afterwards) >= 1
    assert live == [afterwards, afterwards, afterwards]


def test_only_a_live_judge_requests_a_stop_and_only_once(tmp_path: Path) -> None:
    start_run(tmp_path, parameters={"lr": 3.0})
    storage = LocalStorage(tmp_path)
    writer = RunWriter(storage, 0)
    found: list[Finding] = []
    thread = judge_when_begun(tmp_path, 0.01, live=True, found=found)
    for step, loss in enumerate([1.0, 1.1, float("inf")]):
        writer.add(step_record(step, scalars={"losses/a": loss}))
    deadline = time.monotonic() + 30
    while (stop := read_record(storage, StopRecord)) is None:
        assert time.monotonic() < deadline, "the judge never asked"
        time.sleep(0.01)
    # Later findings do not replace the request.
    for step in range(3, 300):
        writer.add(step_record(step, scalars={"losses/a": 1.1}))
    writer.close()
    end_run(tmp_path)
    thread.join(30)
    fatal = [one for one in found if one.severity == "stop"]
    assert [one.rule for one in fatal][:2] == ["nonfinite", "loss_not_decreasing"]
    assert (stop.by, stop.rule, stop.step) == ("rule", "nonfinite", 2)
    assert stop.reason == fatal[0].seen
    assert stop.finding == fatal[0].to_json()
    assert read_record(storage, StopRecord) == stop


@pytest.mark.thorough
def test_the_earlier_request_of_a_person_stays_in_force(tmp_path: Path) -> None:
    start_run(tmp_path)
    storage = LocalStorage(tmp_path)
    stop = StopRecord("person", "enough", time.time())
    write_record(storage, stop)
    writer = RunWriter(storage, 0)
    found: list[Finding] = []
    thread = judge_when_begun(tmp_path, 0.01, live=True, found=found)
    writer.add(step_record(0, scalars={"losses/a": float("nan")}))
    deadline = time.monotonic() + 30
    while not any(one.severity == "stop" for one in found):
        assert time.monotonic() < deadline, "the judge never fired"
        time.sleep(0.01)
    writer.close()
    end_run(tmp_path, "stopped")
    thread.join(30)
    assert read_record(storage, StopRecord) == stop


def test_no_stop_is_requested_of_a_run_that_is_over(tmp_path: Path) -> None:
    run = make_run(tmp_path, [step_record(0, scalars={"losses/a": float("nan")})])
    found = judge(run, all_rules(), live=True)
    assert any(one.severity == "stop" for one in found)
    assert read_record(run.storage, StopRecord) is None


@pytest.mark.thorough
def test_a_real_run_is_judged_the_same_again(runs: RunStore) -> None:
    run = open_run(trained("lr_regression", runs))
    assert judge(run, all_rules()) == judge(run, all_rules()) != []
