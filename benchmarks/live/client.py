"""Clients in processes: ``python -m benchmarks.live.client PATH QUERY EVERY RATE SECONDS``."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from vinedresser.errors import AgentAway
from vinedresser.queries.live.client import ask_live
from vinedresser.queries.query import Query

__all__ = ["Clients", "received"]


class Clients:
    """Processes that ask a training.

    Args:
        path: directory of the run.
        query: the query.
        count: number of clients.
        rate: windows per second; 0: no limit.
        stalls: the last client is stopped, and reads nothing.
    """

    def __init__(
        self, path: Path, query: str, count: int, *, rate: float = 0, stalls: bool = False
    ) -> None:
        words = [str(path), query, "step", str(rate), "1e9"]
        command = [sys.executable, "-m", "benchmarks.live.client", *words]
        self._processes = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)
        ]
        self._stalls = stalls

    def stall(self) -> None:
        """Stop the last client, if it is to stall."""
        if self._stalls:
            self._processes[-1].send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
            process.wait()


def received(path: str, query: str, every: str, rate: float, seconds: float) -> tuple[int, int]:
    """Ask a training for some time; return the numbers of answers and of dropped windows."""
    answers = dropped = 0
    deadline = None
    try:
        for answer in ask_live(path, Query.parse(query, every), rate=rate or None):
            deadline = deadline or time.monotonic() + seconds
            answers += 1
            dropped += answer.dropped
            if time.monotonic() > deadline:
                break
    except AgentAway:
        return answers, dropped
    return answers, dropped


if __name__ == "__main__":
    _path, _query, _every, _rate, _seconds = sys.argv[1:]
    print(*received(_path, _query, _every, float(_rate), float(_seconds)))
