"""Ranks that are asked to stop do so after the same step, so that none waits for another."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.waiting import until
from vinedresser.infra.supervise.launcher import prepare_run, request_stop, start, wait_for_exit
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.store.records import (
    Heartbeat,
    LaunchRecord,
    StopStepRecord,
    heartbeats,
    new_run,
    read_record,
)

# In each step every rank waits for all, as in a collective operation: a rank that is a step ahead
# of another one when both stop would wait for ever.
TRAINING = """
import os, pathlib, socket, sys, time
from vinedresser.capture import Hook
rank, alone = int(os.environ["RANK"]), "alone" in sys.argv
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
with Hook() as hook:
    if not alone and rank == 0:
        other = socket.create_server(address).accept()[0]
    while not alone and rank == 1:
        try:
            other = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    if alone and rank == 0:
        time.sleep(600)
    while True:
        if not alone:
            other.send(b"x")
            if not other.recv(1):
                sys.exit("the other rank is gone")
        time.sleep(0.002 * rank)
        hook.step(loss=1.0)
"""


def stopped(tmp_path: Path, *arguments: str) -> tuple[LocalStorage, dict[int, Heartbeat]]:
    """Stop a run of two ranks in the middle; return it and what the hooks said last."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    launch = LaunchRecord(
        [sys.executable, str(script), *arguments],
        str(tmp_path),
        owner=asdict(this_process()),
        grace=4.0,
        ranks=2,
    )
    directory = tmp_path / "run"
    prepare_run(directory, new_run("run"), launch)
    storage = LocalStorage(directory)
    supervisor = start(directory)
    training = [1] if arguments else [0, 1]
    until(
        lambda: (
            training
            == [heartbeat.rank for heartbeat in heartbeats(storage) if heartbeat.last_step > 5]
        ),
        "steps of the ranks",
    )
    request_stop(directory, reason="enough")
    assert wait_for_exit(directory, 60) is not None
    supervisor.wait()
    return storage, {heartbeat.rank: heartbeat for heartbeat in heartbeats(storage)}


def test_all_ranks_stop_after_the_same_step(tmp_path: Path) -> None:
    storage, last = stopped(tmp_path)
    assert [one.stopped for one in last.values()] == [True, True]
    assert last[0].last_step == last[1].last_step
    decided = read_record(storage, StopStepRecord)
    assert decided is not None
    assert decided.steps == last[0].last_step + 1
    assert "is gone" not in storage.get("log.txt").decode()


@pytest.mark.thorough
def test_a_rank_does_not_wait_for_ever_for_one_that_does_not_train(tmp_path: Path) -> None:
    _, last = stopped(tmp_path, "alone")
    assert last[1].stopped
    assert last[1].closed
