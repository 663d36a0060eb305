"""What a flow leaves behind when it ends is ended by its guard."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from vinedresser.processes import identify, is_alive

Eventually = Callable[[Callable[[], object]], None]

# A flow with a server that carries its marker, one in a session of its own, and a stranger.
FLOW = """
import os, subprocess, sys
from vinedresser.infra.guard import start_guard
stranger = subprocess.Popen(["sleep", "600"])
os.environ["VINEDRESSER_FLOW"] = sys.argv[1]
server = subprocess.Popen(["sleep", "600"])
detached = subprocess.Popen(["sleep", "600"], start_new_session=True)
guard = start_guard("VINEDRESSER_FLOW=" + sys.argv[1])
print(stranger.pid, server.pid, detached.pid, guard.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["killed", "of its own"])
def test_a_guard_ends_what_carries_the_marker_and_then_itself(
    eventually: Eventually, tmp_path_factory: pytest.TempPathFactory, end: str
) -> None:
    marker = tmp_path_factory.mktemp("flow").as_posix()
    with subprocess.Popen(
        [sys.executable, "-c", FLOW, marker],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as flow:
        assert flow.stdout is not None
        found = [identify(int(pid)) for pid in flow.stdout.readline().split()]
        processes = [process for process in found if process is not None]
        assert len(processes) == 4
        stranger, *others = processes
        assert all(is_alive(process) for process in processes)
        if end == "killed":
            flow.send_signal(signal.SIGKILL)
        else:
            assert flow.stdin is not None
            flow.stdin.close()
    eventually(lambda: not any(is_alive(process) for process in others))
    assert is_alive(stranger)
    subprocess.run(["kill", str(stranger.pid)], check=True)


def test_a_guard_over_one_that_has_ended_ends_at_once() -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        identity = identify(owner.pid)
        owner.kill()
    assert identity is not None
    text = f'{{"pid": {identity.pid}, "started": {identity.started}, "boot": "{identity.boot}", '
    text += f'"host": "{identity.host}"}}'
    subprocess.run(
        [
            *(sys.executable, "-P", "-m", "vinedresser.infra.guard"),
            *("--marker", f"VINEDRESSER_FLOW=nobody-{identity.pid}", "--owner", text),
        ],
        check=True,
        timeout=30,
    )
