"""Children of a training that can be asked: they have no agent, and all other files."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.capture.live.live_training import LiveTraining
from tests.waiting import until
from vinedresser.errors import AgentAway
from vinedresser.queries.live.client import agent_status


def test_a_forked_child_has_no_agent(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    agent_status(str(path))
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        until(lambda: all_silent(child), "the child lets go of sockets", 10)
        assert not all_silent(os.getpid())
        training.hook.close()
        with pytest.raises(AgentAway):
            agent_status(str(path))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def all_silent(process: int) -> bool:
    """Return whether a process has none of the sockets on which the agents of this one listen."""
    table = Path("/proc/net/unix").read_text().splitlines()
    ours = {line.split()[6] for line in table if "/agents/" in line or line.endswith(".sock")}
    held = set()
    for number in os.listdir(f"/proc/{process}/fd"):
        with suppress(FileNotFoundError):
            held.add(os.readlink(f"/proc/{process}/fd/{number}"))
    return not any(f"socket:[{inode}]" in held for inode in ours)


def test_a_child_forked_after_the_training_has_its_files(tmp_path: Path) -> None:
    training = LiveTraining(tmp_path / "run")
    agent_status(str(tmp_path / "run"))
    training.hook.close()
    # They have the numbers of the agent's files, which are closed.
    pipes = [os.pipe2(os.O_NONBLOCK) for _ in range(20)]
    child = os.fork()
    if not child:
        os._exit(_said_through(pipes))
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [os.read(reading, 8) for reading, _ in pipes] == [b"%d" % n for n in range(20)]
    finally:
        for pipe in pipes:
            os.close(pipe[0])
            os.close(pipe[1])


def _said_through(pipes: list[tuple[int, int]]) -> int:
    """Write the number of each pipe into it, in a child of a child; return its exit code."""
    grandchild = os.fork()
    if grandchild:
        return os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
    for number, (_, writing) in enumerate(pipes):
        os.write(writing, b"%d" % number)
    os._exit(0)
