"""A training that clients visit, leave, and are killed or stopped in, is the same training."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.capture.live.live_training import LiveTraining
from tests.waiting import until

_QUERIES = (
    "norm(gradients) by layer",
    "mean(abs(outputs/1)) every 10 steps",
    "histogram(weights/0.weight, 20) every 1 seconds",
    "top(abs(gradients/2.weight), 3) every flush",
    "norm(no_such_name)",
)
_CLIENTS = 4


class Visitors:
    """Processes that ask a training, and what happens to them, drawn with a seed.

    Args:
        path: directory of the run.
        seed: seed of the draw.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self._path = path
        self._random = random.Random(seed)
        self._running: list[subprocess.Popen[bytes] | None] = [None] * _CLIENTS
        self.happened = dict.fromkeys(("came", "killed", "stopped", "resumed", "left"), 0)

    def happen(self) -> None:
        """Let something happen to one of them."""
        place = self._random.randrange(_CLIENTS)
        one = self._running[place]
        if one is None or one.poll() is not None:
            self._running[place] = self._come()
            self.happened["came"] += 1
            return
        word, sent = self._random.choice(
            [
                ("killed", signal.SIGKILL),
                ("stopped", signal.SIGSTOP),
                ("resumed", signal.SIGCONT),
                ("left", signal.SIGINT),
            ]
        )
        one.send_signal(sent)
        self.happened[word] += 1

    def end(self) -> None:
        """End all of them."""
        for one in self._running:
            if one is not None:
                one.kill()
                one.wait()

    def _come(self) -> subprocess.Popen[bytes]:
        query, rate = self._random.choice(_QUERIES), self._random.choice(("0", "10", "1"))
        command = [sys.executable, "-m", "vinedresser", "ask", str(self._path), query]
        return subprocess.Popen(
            [*command, "--rate", rate], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def check_visited(folder: Path, seconds: float, seed: int) -> None:
    """Train for some time with visitors, then as many steps without; compare everything."""
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    training = LiveTraining(folder / "visited")
    visitors = Visitors(folder / "visited", seed)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        training.step()
        if training.steps % 100 == 0:
            visitors.happen()
        # The pace of a larger training.
        time.sleep(0.002)
    agent = training.hook._agent
    assert agent is not None
    table = agent.observer.table
    visitors.end()
    training.until(lambda: not len(table))
    assert not training.hook.problems
    training.hook.close()
    assert threading.active_count() == threads
    until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "the last descriptors")
    assert all(visitors.happened.values()), visitors.happened
    assert visitors.happened["came"] > _CLIENTS

    alone = LiveTraining(folder / "alone", live=False)
    while alone.steps < training.steps:
        alone.step()
    alone.hook.close()
    assert alone.digest() == training.digest()


@pytest.mark.slow
def test_twenty_seconds_of_visitors_change_nothing(tmp_path: Path) -> None:
    check_visited(tmp_path, 20, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_five_minutes_of_visitors_change_nothing(tmp_path: Path) -> None:
    check_visited(tmp_path, 300, seed=2)
