"""Processes have unique identities, are watched without polling, and end with their descendants."""

from __future__ import annotations

import os
import pwd
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vinedresser.processes import (
    boot_id,
    descendants,
    identify,
    is_alive,
    kill_group,
    kill_marked,
    marked_processes,
    this_process,
    user_name,
    wait_for_end,
    watch,
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that leads its own group."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def test_a_process_has_an_identity_while_it_runs(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    assert (identity.pid, identity.boot, identity.host) == (
        sleeper.pid,
        boot_id(),
        os.uname().nodename,
    )
    assert is_alive(identity)
    assert identify(sleeper.pid) == identity
    sleeper.kill()
    assert wait_for_end(identity, 30)
    # A zombie, not yet reaped, has ended.
    assert identify(sleeper.pid) is None
    assert is_alive(identity) is False
    sleeper.wait()
    assert identify(sleeper.pid) is None


def test_the_start_time_is_the_kernels(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    listed = subprocess.run(
        ["ps", "-o", "etimes=", "-p", str(sleeper.pid)], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("needs ps")
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    age = uptime - identity.started / os.sysconf("SC_CLK_TCK")
    elapsed = float(listed.stdout)
    # For a process that is younger than the uptime is exact, ps prints a wrapped number.
    assert abs(age - (elapsed if elapsed < uptime else 0.0)) < 2


def test_a_command_name_may_contain_anything(tmp_path: Path) -> None:
    program = tmp_path / ") Z 1 (x"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as process:
        identity = identify(process.pid)
        assert identity is not None
        assert descendants(os.getpid()).count(process.pid) == 1
        process.kill()


def test_a_reused_id_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    assert is_alive(replace(identity, started=identity.started - 1)) is False
    assert is_alive(replace(identity, boot="another boot")) is False
    assert is_alive(replace(identity, host="another host")) is None


def test_an_unused_id_has_no_identity() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert identify(process.pid) is None


def test_this_process_is_alive() -> None:
    assert this_process().pid == os.getpid()
    assert is_alive(this_process())


def test_watching_reports_the_end(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    descriptor = watch(identity)
    assert descriptor is not None
    assert select.select([descriptor], [], [], 0)[0] == []
    assert not wait_for_end(identity, 0.01)
    sleeper.kill()
    assert select.select([descriptor], [], [], 30)[0] == [descriptor]
    os.close(descriptor)
    assert watch(identity) is None
    assert wait_for_end(identity)


def test_watching_is_not_fooled_by_a_reused_id(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    before = os.listdir("/proc/self/fd")
    assert watch(replace(identity, started=identity.started - 1)) is None
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_descendants_include_grandchildren() -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert descendants(parent.pid) == [child]
        assert {parent.pid, child} <= set(descendants(os.getpid()))
        assert parent.stdin is not None
        parent.stdin.close()
        parent.wait()
    assert descendants(parent.pid) == []
    os.kill(child, signal.SIGKILL)


def test_marked_processes_are_found_by_the_whole_entry(tmp_path: Path) -> None:
    mark = f"VINEDRESSER_TEST={tmp_path}"
    environment = {**os.environ, "VINEDRESSER_TEST": str(tmp_path)}
    longer = {**environment, "VINEDRESSER_TEST": f"{tmp_path}-longer"}
    with (
        subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True) as marked,
        subprocess.Popen(["sleep", "600"], env=environment) as spared,
        subprocess.Popen(["sleep", "600"], env=longer) as other,
    ):
        # The environment changes with exec, and Popen waits for that.
        assert sorted(marked_processes(mark)) == sorted([marked.pid, spared.pid])
        assert kill_marked(mark, sparing=frozenset({spared.pid})) == [marked.pid]
        assert marked.wait() == -signal.SIGKILL
        assert spared.poll() is None
        assert kill_marked(mark) == [spared.pid]
        assert spared.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


def test_killing_outruns_forks(tmp_path: Path) -> None:
    code = "import os, time\nfor _ in range(50): os.fork() or time.sleep(600); time.sleep(0.002)"
    environment = {**os.environ, "VINEDRESSER_TEST": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-S", "-c", code], env=environment) as first:
        mark = f"VINEDRESSER_TEST={tmp_path}"
        while len(list(marked_processes(mark))) < 5:
            assert first.poll() is None
        kill_marked(mark)
    assert list(marked_processes(mark)) == []


def test_a_group_is_killed_after_its_leader_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        member = identify(int(leader.stdout.readline()))
        identity = identify(leader.pid)
        assert member is not None
        assert identity is not None
        assert leader.stdin is not None
        leader.stdin.write("\n")
        leader.stdin.flush()
        leader.wait()
        assert is_alive(member)
        kill_group(identity)
        assert wait_for_end(member, 30)
    kill_group(identity)


def test_a_killed_leader_has_ended() -> None:
    # The kernel takes a while to free so much memory.
    program = "held = bytes([1]) * 400_000_000; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        leader.stdout.readline()
        identity = identify(leader.pid)
        assert identity is not None
        kill_group(identity)
        assert not is_alive(identity)


def test_a_group_of_another_process_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    for stale in (
        replace(identity, started=identity.started - 1),
        replace(identity, boot="another boot"),
        replace(identity, host="another host"),
    ):
        kill_group(stale)
    assert is_alive(identity)
    kill_group(identity)
    assert sleeper.wait() == -signal.SIGKILL


def test_the_name_of_the_user_is_that_of_the_environment_or_of_the_user_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    assert user_name() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setenv("LOGNAME", "ada")
    assert user_name() == "ada"


def test_a_user_id_without_a_name_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert user_name() == ""
