"""Killing a writer with SIGKILL at random moments."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import start_run
from vinedresser.testing.writing import known_records

KILLS = 24
AT_ONCE = 4


Start = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def write_forever() -> Iterator[Start]:
    """Start a process that writes a run until it is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(folder: Path) -> subprocess.Popen[str]:
        start_run(folder)
        command = [
            sys.executable,
            "-m",
            "vinedresser.testing.writing",
            str(folder),
            "0",
            "0",
            "3e-4",
        ]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


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
            writer.kill()
        for folder, writer in zip(folders, writers, strict=True):
            output, _ = writer.communicate()
            lines = [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
            check(folder, lines)
            confirmed += lines
    assert confirmed
