"""Trainings that are asked while they run: ``python -m benchmarks.live``.

Steps of about 3 ms, block by block in turn in one process, whose processor time counts, the agent's
thread included; the clients are other processes. A ratio is the median over the rounds of a block's
time to that of the arm "hook" in the same round; "hook again" shows its random error.
"""

from __future__ import annotations

import argparse
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from benchmarks.live.training import ARMS, Training
from benchmarks.live.windows import WAYS, exact_windows
from benchmarks.measure import interleave, table
from vinedresser.capture import Hook
from vinedresser.errors import AgentAway
from vinedresser.queries.live.client import agent_status
from vinedresser.queries.live.place import agent_name, opened_folder

__all__ = ["main"]

# Microsoft's TensorWatch at its last commit (2025-09), measured on two shared cores with Python
# 3.11 and torch 2.13: its own test expression for windows, its idle `observe`, a trivial stream,
# and four of them.
_TENSORWATCH = (
    ("idle, microseconds per event", "0.56 to 0.84"),
    ("one trivial stream, one client, microseconds per event", "31 to 57"),
    ("four trivial streams, four clients, microseconds per event", "139 to 205"),
    ("windows with the right value", "0 of 600"),
    ("evaluations after the client was gone", "500 of 500"),
)
# Maximum ratios, to the arm named.
_BUDGETS = {
    "idle agent": (1.01, "hook"),
    "one client, 10 Hz": (1.01, "hook"),
    "one client, every step": (1.15, "hook"),
    "four clients, every step": (1.05, "one client, every step"),
    "one and a stalled client, every step": (1.01, "one client, every step"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--noise", type=int, default=1_000_000, help="bytes sent to the socket")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        print(_ratios(folder, options.rounds), end="\n\n")
        print(f"idle: {_idle(folder):.2f} microseconds per step\n")
        print(_stream(folder, options.seconds), end="\n\n")
        rows = [(way, *exact_windows(folder / way, way, options.windows)) for way in WAYS]
        print(table(rows, ("closed by", "exact", "windows")), end="\n\n")
        print(_noise(folder, options.noise), end="\n\n")
        print(table(_TENSORWATCH, ("TensorWatch", "")))
    finally:
        shutil.rmtree(folder)
    return 0


def _ratios(folder: Path, rounds: int) -> str:
    trainings = {arm: Training(folder / str(place), arm) for place, arm in enumerate(ARMS)}
    for training in trainings.values():
        training.block()
        training.clients.stall()
    found = interleave({arm: one.block for arm, one in trainings.items()}, rounds)
    for training in trainings.values():
        training.close()

    def ratio(arm: str, to: str) -> float:
        return median(one / other for one, other in zip(found[arm], found[to], strict=True))

    rows = []
    for arm, seconds in found.items():
        most, to = _BUDGETS.get(arm, (None, "hook"))
        rows.append(
            (
                arm,
                f"{median(seconds) * 1000:.2f}",
                f"{ratio(arm, 'hook'):.3f}",
                "" if most is None else f"{ratio(arm, to):.3f} of {to!r}, at most {most}",
            )
        )
    return table(rows, ("arm", "ms per step", "ratio", "budget"))


def _idle(folder: Path) -> float:
    """Return what an agent without clients adds to a step, in microseconds."""
    with Hook(folder / "idle", live=True) as hook:
        observer = hook._session.recorder.observer
        assert observer is not None

        def event() -> None:
            observer.asked("train")
            observer.train_step_ended(1, None)

        return min(timeit.repeat(event, number=100_000, repeat=5)) * 10


def _stream(folder: Path, seconds: float) -> str:
    """Offer events as fast as possible to one client in another process."""
    path = folder / "stream"
    with Hook(path, live=True) as hook:
        agent = hook._agent
        assert agent is not None
        words = [str(path), "x", "tick", "0", str(seconds)]
        command = [sys.executable, "-m", "benchmarks.live.client", *words]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        queries = agent.observer.table
        while not len(queries):
            time.sleep(0.01)
        events, began, used = 0, time.perf_counter(), time.process_time()
        # Count no events after the client has left: they are not evaluated.
        while len(queries):
            hook.event("tick", x=1.0)
            events += 1
        took, used = time.perf_counter() - began, time.process_time() - used
        answers, dropped = map(int, client.communicate()[0].split())
    each = f"{used / events * 1e6:.1f}"
    return table(
        [(f"{events / took:,.0f}", f"{answers / seconds:,.0f}", f"{dropped:,}", each)],
        (
            "events per second, evaluated",
            "received by the client",
            "dropped",
            "microseconds of processor time per event",
        ),
    )


def _noise(folder: Path, octets: int) -> str:
    """Send noise to the socket; return what became of the training and of its agent."""
    random_ = random.Random(0)
    path = folder / "noise"
    starts = (
        b"",
        b"GET /ask?query=",
        b"GET /status HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /flush",
    )
    sent = connections = 0
    with Hook(path, live=True) as hook:
        while sent < octets:
            noise = random_.choice(starts) + random_.randbytes(random_.randint(1, 2000))
            with socket.socket(socket.AF_UNIX) as connection, opened_folder() as place:
                connection.connect(f"{place}/{agent_name(str(path), 0)}")
                connection.sendall(noise)
            hook.step(loss=1.0)
            sent, connections = sent + len(noise), connections + 1
        steps = _steps_seen(path)
        problems = hook.problems
    return (
        f"{sent:,} bytes of noise in {connections:,} connections: {steps:,} steps trained, "
        f"problems: {problems}"
    )


def _steps_seen(path: Path) -> int:
    """Return the number of steps, as soon as the agent has ended the connections of the noise."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return int(agent_status(str(path))["step"])
        except AgentAway:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
