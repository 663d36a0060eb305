"""Killing a writer with SIGKILL at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import until
from vinedresser.processes import identify
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import start_run
from vinedresser.testing.writing import known_records

KILLS = 24
AT_ONCE = 4

# Processes that write runs until they are killed, forked from one that has loaded what they need:
# for each folder that it reads it prints the process, whose output is in a file beside the folder.
_WRITERS = """
import os, signal, sys
from vinedresser.testing.writing import write

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for folder in map(str.strip, sys.stdin):
    writer = os.fork()
    if not writer:
        os.dup2(os.open(folder + ".out", os.O_CREAT | os.O_WRONLY), 1)
        write(folder, 0, 0, 3e-4)
    print(writer, flush=True)
"""


Start = Callable[[Path], int]


@pytest.fixture
def write_forever() -> Iterator[Start]:
    """Start a process that writes a run until it is killed; return its id."""
    writers = subprocess.Popen(
        [sys.executable, "-c", _WRITERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        told, answers = writers.stdin, writers.stdout

        def start(folder: Path) -> int:
            start_run(folder)
            print(folder, file=told, flush=True)
            return int(answers.readline())

        yield start
        os.killpg(writers.pid, signal.SIGKILL)


def check(folder: Path, confirmed: list[str]) -> None:
    """Every committed step is there, whole and right; nothing else is; following ends."""
    run = open_run(folder)
    steps = list(run.follow())
    assert run.problems == []
    assert run.status.state == "dead"
    for step, record in zip(steps, islice(known_records(0), len(steps)), strict=True):
        assert (step.mode, step.step) == (record.mode, record.step)
        assert step.scalars == record.scalars
        assert step.reductions == record.reductions
        for name, tensor in record.tensors.items():
            np.testing.assert_array_equal(step.tensor(name), tensor.data)
    if confirmed:
        assert steps[-1].step >= int(confirmed[-1])


def gone(pid: int) -> bool:
    return identify(pid) is None


@pytest.mark.thorough
def test_committed_data_survives_a_kill_at_any_moment(tmp_path: Path, write_forever: Start) -> None:
    moments = random.Random(3)
    confirmed = []
    for turn in range(KILLS // AT_ONCE):
        folders = [tmp_path / f"{turn}-{number}" for number in range(AT_ONCE)]
        writers = [write_forever(folder) for folder in folders]
        for number, (folder, writer) in enumerate(zip(folders, writers, strict=True)):
            deadline = time.monotonic() + 60
            # Half of them as early as that, before anything is known to be committed.
            sign = folder / ("segments" if number % 2 else "heartbeat")
            while not sign.exists():
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(moments.uniform(0, 0.05))
            os.kill(writer, signal.SIGKILL)
        for folder, writer in zip(folders, writers, strict=True):
            until(partial(gone, writer), "its end")
            output = folder.with_suffix(".out").read_text(encoding="utf-8")
            lines = [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
            check(folder, lines)
            confirmed += lines
    assert confirmed
