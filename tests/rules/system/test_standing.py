"""A stalled run is explained by where its ranks stand, and by the one that the others wait for."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.waiting import until
from vinedresser import open_run
from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import StillRunning
from vinedresser.infra.supervise.launcher import prepare_run, settle, start, wait_for_exit
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.standing import explain_stall
from vinedresser.store.finding import Finding
from vinedresser.store.records import (
    LaunchRecord,
    StacksRecord,
    SupervisorRecord,
    heartbeats,
    new_run,
    read_record,
    write_record,
)

# Waits for the other rank, in a file that is called like torch's; loading torch takes seconds.
COLLECTIVE = """
import time
def all_reduce():
    time.sleep(600)
"""
TRAINING = """
import importlib.util, os, pathlib, time
from vinedresser.capture import Hook
path = "site-packages/torch/distributed/distributed_c10d.py"
spec = importlib.util.spec_from_file_location("collective", path)
collective = importlib.util.module_from_spec(spec)
spec.loader.exec_module(collective)
def load_batch():
    time.sleep(600)
with Hook() as hook:
    pathlib.Path(f"here-{os.environ['RANK']}").touch()
    while not all(pathlib.Path(f"here-{rank}").exists() for rank in range(2)):
        time.sleep(0.005)
    for step in range(5):
        hook.step(loss=1.0)
    load_batch() if os.environ["RANK"] == "1" else collective.all_reduce()
"""


@pytest.fixture
def stalled(tmp_path: Path) -> Iterator[Path]:
    """Return the directory of a run of two ranks, of which rank 0 waits for rank 1."""
    package = tmp_path / "site-packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package / "distributed_c10d.py").write_text(COLLECTIVE, encoding="utf-8")
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINING), encoding="utf-8")
    launch = LaunchRecord(
        [sys.executable, "train.py"],
        str(tmp_path),
        attach_environment(),
        asdict(this_process()),
        grace=0.2,
        ranks=2,
    )
    directory = tmp_path / "run"
    prepare_run(directory, new_run("run"), launch)
    supervisor = start(directory)
    storage = LocalStorage(directory)
    until(
        lambda: [heartbeat.last_step for heartbeat in heartbeats(storage)] == [4, 4], "five steps"
    )
    yield directory
    supervisor.kill()
    supervisor.wait()
    try:
        settle(directory, grace=0.0)
    except StillRunning as error:
        raise AssertionError(str(error)) from error


def test_the_missing_rank_is_named_with_its_place_and_ends_the_run(stalled: Path) -> None:
    settings = {"seconds": 0.5, "times": 1.0, "severity": "stop"}
    rules = rules_from_table({"stalled_training": settings})
    [found] = judge(open_run(stalled), rules, live=True)
    assert found.rank == 1
    assert found.evidence["missing"] == [1]
    assert found.evidence["ranks"] == {
        "0": "waits in all_reduce (train.py:16 in <module>)",
        "1": "is at train.py:9 in load_batch",
    }
    assert "rank 1 is at train.py:9 in load_batch, while rank 0 waits in all_reduce" in found.seen
    record = wait_for_exit(stalled, 60)
    assert record is not None
    assert (record.cause, record.reason) == ("stopped", found.seen)
    # Judged later, without any process to ask, it is the same, but for a step that was stored only
    # when the training was stopped.
    [again] = judge(open_run(stalled), rules)
    assert (again.rank, again.evidence["ranks"]) == (1, found.evidence["ranks"])
    assert again.step in (found.step, found.step + 1)


def test_a_rank_that_is_stopped_by_a_signal_is_the_missing_one(stalled: Path) -> None:
    storage = LocalStorage(stalled)
    began = read_record(storage, SupervisorRecord)
    assert began is not None
    os.kill(began.peers[0]["pid"], signal.SIGSTOP)
    found = explain_stall(finding(), storage, live=True)
    assert (found.rank, found.evidence["missing"]) == (1, [1])
    assert found.evidence["ranks"]["1"] == "is stopped by a signal"


def finding() -> Finding:
    """Return what the rule says without the stacks."""
    return Finding(
        rule="stalled_training",
        severity="warning",
        step=4,
        since=4,
        mode="train",
        rank=0,
        tensor="",
        statistic="seconds without a step",
        seen="no data for 9 s",
        cause="it hangs",
        remedy="look",
        value=9.0,
        threshold=9.0,
        confidence=0.8,
    )


def explained(tmp_path: Path, *places: tuple[str, list[list[object]]]) -> Finding:
    """Explain a stall by recorded stacks."""
    ranks = [{"state": state, "frames": frames} for state, frames in places]
    storage = LocalStorage(tmp_path)
    write_record(storage, StacksRecord(0.0, ranks))
    return explain_stall(finding(), storage, live=True)


def waiting(operation: str, line: int) -> tuple[str, list[list[object]]]:
    """Return the stack of a rank that waits in a collective operation of torch."""
    library = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    frames: list[list[object]] = [[library, 2900, operation], [library, 83, "wrapper"]]
    return "running", [*frames, ["/home/me/train.py", line, "step"]]


def test_ranks_in_different_operations(tmp_path: Path) -> None:
    same, other = waiting("all_reduce", 7), waiting("barrier", 9)
    assert explained(tmp_path / "three", same, other, same).evidence["missing"] == [1]
    undecided = explained(tmp_path / "two", same, other)
    assert (undecided.rank, undecided.evidence["missing"]) == (0, [])
    assert "rank 1 waits in barrier (train.py:9 in step)" in undecided.seen


def test_nobody_is_accused_where_all_do_the_same(tmp_path: Path) -> None:
    same = waiting("all_reduce", 7)
    assert explained(tmp_path / "wait", same, same).evidence["missing"] == []
    elsewhere: tuple[str, list[list[object]]] = ("running", [["train.py", 3, "load"]])
    assert explained(tmp_path / "load", elsewhere, elsewhere).evidence["missing"] == []


def test_a_rank_that_has_ended_is_missing(tmp_path: Path) -> None:
    found = explained(tmp_path, waiting("all_reduce", 7), ("ended", []))
    assert found.evidence["missing"] == [1]
    assert "rank 1 has ended" in found.seen


def test_a_single_process_says_where_it_is(tmp_path: Path) -> None:
    frames: list[list[object]] = [
        ["/env/site-packages/torch/autograd/graph.py", 979, "_engine_run_backward"],
        ["train.py", 22, "<module>"],
    ]
    found = explained(tmp_path, ("running", frames))
    assert found.seen == "no data for 9 s; the process is at train.py:22 in <module>"
