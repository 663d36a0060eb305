"""Several processes on one study: each trial has one of them, and a dead one's are taken over."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.studies import FINISHED, SPACE
from tests.waiting import until
from vinedresser.errors import StillRunning
from vinedresser.infra.configuration import build
from vinedresser.sweeps import journal
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.study import Study

SETTINGS: dict[str, Any] = {
    "metric": "accuracy",
    "direction": "maximize",
    "trials": 60,
    "sampler": {"name": "tpe", "startup": 5},
    "pruner": {"name": "asha", "eta": 2},
}


def joined(path: Path, **more: Any) -> Study:
    settings = build(SweepTable, {**SETTINGS, **more}, "sweep.toml: sweep")
    return Study(settings, SPACE, path, join=True)


def work(path: Path, more: dict[str, Any], most: int) -> None:
    """Run trials until none is left, or up to a number and with one more that has begun."""
    study = joined(path, **more)
    done = 0
    while True:
        with study.turn():
            # Before the look for trials to run again: one of them may die at any time.
            others = study.others()
            proposal = next(iter(study.again()), None) or study.ask()
            waits = bool(others) and not study.over
        if proposal is None:
            if waits:
                time.sleep(0.01)
                continue
            break
        if done == most:
            path.with_name(f"stuck-{os.getpid()}").touch()
            signal.pause()
        ending, epoch = None, 0
        while ending is None and epoch < 4:
            epoch += 1
            with study.turn():
                ending = study.report(proposal.number, epoch, proposal.number % 7 * epoch)
        with study.turn():
            study.tell(proposal.number, ending or FINISHED, [float(proposal.number % 7)])
        done += 1
    study.close()


def start(path: Path, more: dict[str, Any], most: int = 1000) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(
        target=work, args=(path, more, most), daemon=True
    )
    process.start()
    return process


@pytest.mark.parametrize(
    "more", [{}, {"sampler": {"name": "pbt", "population": 6}, "pruner": "none", "resume": "from"}]
)
def test_no_trial_is_run_twice_or_lost(tmp_path: Path, more: dict[str, Any]) -> None:
    path = tmp_path / "journal.log"
    joined(path, **more).close()
    killed = start(path, more, most=2)
    until((tmp_path / f"stuck-{killed.pid}").exists)
    others = [start(path, more) for _ in range(2)]
    # Those of the others; in a population, the first generation waits for the stuck one.
    until(lambda: path.read_bytes().count(b'"ending"') > 4)
    killed.kill()
    killed.join()
    for process in others:
        process.join()
    assert [process.exitcode for process in others] == [0, 0]
    study = joined(path, **more)
    trials = study.trials()
    assert [one.number for one in trials] == list(range(60))
    assert {one.ending.state for one in trials} <= {"finished", "pruned"}
    told = path.read_bytes()
    assert told.count(b'"ending"') == 60
    if not more:
        configurations = [tuple(one.parameters.items()) for one in trials]
        assert len(set(configurations)) == 60
        assert any(one.ending.state == "pruned" for one in trials)
    else:
        lines = [one.line for one in trials if one.line]
        places = [(line.generation, line.member) for line in lines]
        assert places == [(turn, member) for turn in range(10) for member in range(6)]
    study.close()


def test_one_process_hosts_and_another_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    first, second = joined(path), joined(path)
    assert (first.hosts(), second.hosts()) == (True, False)
    with pytest.raises(StillRunning, match="another process is running this sweep"):
        Study(build(SweepTable, SETTINGS, "sweep"), SPACE, path)
    with first.turn():
        one = first.ask()
    with second.turn():
        other = second.ask()
        assert second.again() == []
        assert one is not None
        assert second.others() == {one.number}
    assert other is not None
    assert other.number == one.number + 1
    assert other.parameters != one.parameters
    first.close()
    with second.turn():
        assert [left.number for left in second.again()] == [one.number]
        assert second.hosts()
        assert [left.parameters for left in second.again()] == []
    second.close()


def test_what_a_killed_process_wrote_halfway_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    study = joined(path)
    with path.open("ab") as file:
        file.write(b'{"op_code":4,"worker')
    with study.turn():
        proposal = study.ask()
    assert proposal is not None
    study.close()
    again = joined(path)
    with again.turn():
        assert [one.number for one in again.again()] == [proposal.number]
    again.close()


def test_a_process_that_joins_knows_all_trials_that_begin_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    more: dict[str, Any] = {"trials": 100_000, "sampler": "random", "pruner": "none"}
    first = joined(path, **more)
    done = threading.Event()

    def run() -> None:
        # A pause, since each process that joins reads all that was written.
        while not done.wait(0.002):
            with first.turn():
                proposal = first.ask()
                assert proposal is not None
            with first.turn():
                first.tell(proposal.number, FINISHED, [0.5])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(5):
            study = joined(path, **more)
            with study.turn():
                assert study.ask() is not None
                numbers = [trial.number for trial in study.trials()]
            study.close()
            assert numbers == list(range(len(numbers)))
    finally:
        done.set()
        thread.join()
    first.close()


FEW: dict[str, Any] = {"trials": 4, "sampler": "random"}


def work_until_killed(path: Path, writes: int) -> None:
    """Run trials, and be killed when half of a write to the journal is done, counted from 0."""
    write, left = os.write, writes

    def some(descriptor: int, text: bytes) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            write(descriptor, text[: len(text) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(descriptor, text)

    pytest.MonkeyPatch().setattr(os, "write", some)
    work(path, FEW, 1000)


@pytest.mark.slow
def test_a_process_may_be_killed_at_each_write(tmp_path: Path) -> None:
    code, writes = -signal.SIGKILL, 0
    while code:
        path = tmp_path / f"{writes}" / "journal.log"
        killed = multiprocessing.get_context("fork").Process(
            target=work_until_killed, args=(path, writes)
        )
        killed.start()
        killed.join()
        code = killed.exitcode or 0
        work(path, FEW, 1000)
        study = joined(path, **FEW)
        trials = study.trials()
        study.close()
        assert [one.number for one in trials] == list(range(4))
        assert len({one.parameters["lr"] for one in trials}) == 4
        assert {one.ending.state for one in trials} <= {"finished", "pruned"}
        # Optuna's entries of the states of trials (6) that are not running (0).
        entries = [json.loads(line) for line in path.read_bytes().splitlines()]
        ends = [one["trial_id"] for one in entries if one["op_code"] == 6 and one["state"]]
        assert sorted(ends) == list(range(4))
        writes += 1
    assert writes > 30


def test_an_earlier_version_that_takes_no_turns_is_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    host = joined(path)
    path.with_name("journal.log.turn").unlink()
    with pytest.raises(StillRunning, match="an earlier version of vinedresser is running this"):
        joined(path)
    host.close()
    joined(path).close()


def turn_without_end(path: Path) -> None:
    """Take one turn after the other."""
    study = joined(path)
    while True:
        with study.turn():
            time.sleep(0.005)


def test_a_process_that_decides_without_a_pause_leaves_others_their_turns(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    study = joined(path)
    greedy = [
        multiprocessing.get_context("fork").Process(
            target=turn_without_end, args=(path,), daemon=True
        )
        for _ in range(2)
    ]
    for process in greedy:
        process.start()
    until(lambda: len([*(tmp_path / "flows").iterdir()]) == 3)
    turns = 0
    deadline = time.monotonic() + 100
    while turns < 100 and time.monotonic() < deadline:
        with study.turn():
            turns += 1
    for process in greedy:
        process.kill()
        process.join()
    study.close()
    assert turns == 100


def hold(path: Path) -> None:
    """Take a turn and keep it."""
    with joined(path).turn():
        path.with_name("held").touch()
        signal.pause()


def test_who_holds_the_turn_for_long_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal.log"
    study = joined(path)
    process = multiprocessing.get_context("fork").Process(target=hold, args=(path,), daemon=True)
    process.start()
    until((tmp_path / "held").exists)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(journal, "_LONG", 0.1)

    def take() -> None:
        with study.turn():
            pass

    thread = threading.Thread(target=take)
    thread.start()
    until(lambda: caplog.messages)
    process.kill()
    thread.join()
    process.join()
    (said,) = caplog.messages
    assert "has waited 0.1 s for its turn; the last one was that of process " in said
    assert f"{process.pid} on {socket.gethostname()}, which is suspended: continue it" in said
    study.close()
