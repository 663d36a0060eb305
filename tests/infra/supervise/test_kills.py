"""Whoever is killed, nothing of a run lives on, and its end is on record."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.infra.supervise.supervised import ended, trainer_pid
from vinedresser.errors import LaunchError, StillRunning
from vinedresser.infra.supervise.launcher import (
    request_stop,
    settle,
    start,
    supervisor_alive,
    wait_for_exit,
)
from vinedresser.objects import LocalStorage
from vinedresser.processes import descendants, identify, this_process
from vinedresser.store.records import (
    Heartbeat,
    heartbeat_key,
    write_record,
)

Eventually = Callable[[Callable[[], object]], None]
Prepared = Callable[..., Path]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]

# Leaves behind a child, one in a session of its own, a daemon, and one that denies its origin; all
# deaf to SIGTERM.
FAMILY = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
deaf += "; time.sleep(600)"
pids = []
for options in ({}, {"start_new_session": True}, {"env": {}, "start_new_session": True}):
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", deaf], stdout=subprocess.PIPE, **options
    )
    child.stdout.readline()
    pids.append(child.pid)
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(write, str(os.getpid()).encode())
    time.sleep(600)
pids.append(int(os.read(read, 20)))
pathlib.Path("pids").write_text(" ".join(map(str, pids)))
os.rename("pids", "family")
"""
SAVES_AND_PRINTS = """
import pathlib, signal, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
while not asked:
    print("step", flush=True)
    pathlib.Path("ready").touch()
    time.sleep(0.005)
print("saving", flush=True)
pathlib.Path("checkpoint").write_text("saved")
"""


def living(tmp_path: Path) -> list[int]:
    """Return those of the family that still live."""
    pids = [int(pid) for pid in (tmp_path / "family").read_text().split()]
    assert len(pids) == 4
    return [pid for pid in pids if identify(pid) is not None]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ("", "finished"),
        ("1/0", "crashed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed"),
        ("time.sleep(600)", "stopped"),
    ],
)
def test_no_descendant_outlives_the_trainer(
    launched: Launched, eventually: Eventually, tmp_path: Path, last: str, cause: str
) -> None:
    directory, _ = launched(FAMILY + last, grace=0.2)
    if cause == "stopped":
        eventually((tmp_path / "family").exists)
        assert len(living(tmp_path)) == 4
        request_stop(directory, reason="enough")
    assert ended(directory).cause == cause
    assert living(tmp_path) == []


def test_the_trainer_of_a_killed_supervisor_saves_and_ends(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, supervisor = launched(SAVES_AND_PRINTS)
    eventually((tmp_path / "ready").exists)
    beat = Heartbeat(0, asdict(this_process()), 17, time.time())
    write_record(LocalStorage(directory), beat, key=heartbeat_key(0))
    supervisor.kill()
    supervisor.wait()
    assert not supervisor_alive(directory)
    assert wait_for_exit(directory, 30) is None
    pid = trainer_pid(directory)
    record = settle(directory)
    # It may have released its memory, and with it what shows whose process it is, just before.
    eventually(lambda: identify(pid) is None)
    assert (tmp_path / "checkpoint").read_text() == "saved"
    assert (record.cause, record.reason) == ("killed", "supervisor and trainer vanished")
    assert (record.last_step, record.code, record.ended) == (17, None, beat.time)
    assert settle(directory) == record == ended(directory)


def test_a_stop_that_a_killed_supervisor_had_seen_is_still_a_stop(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, supervisor = launched(SAVES_AND_PRINTS)
    eventually((tmp_path / "ready").exists)
    supervisor.send_signal(signal.SIGSTOP)
    request_stop(directory, by="rule", rule="nonfinite", reason="loss is NaN")
    supervisor.kill()
    supervisor.wait()
    record = settle(directory)
    assert (record.cause, record.reason) == ("stopped", "loss is NaN")
    assert record.stop is not None
    assert record.stop.rule == "nonfinite"


def test_settling_ends_what_does_not_listen(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, supervisor = launched(FAMILY + "time.sleep(600)")
    eventually((tmp_path / "family").exists)
    pid = trainer_pid(directory)
    supervisor.kill()
    supervisor.wait()
    assert identify(pid) is not None
    settle(directory, grace=0.05)
    assert identify(pid) is None
    # The one that denies its origin is beyond the reach of all but its supervisor.
    denied = int((tmp_path / "family").read_text().split()[2])
    assert set(living(tmp_path)) <= {denied}
    os.kill(denied, signal.SIGKILL)


def test_a_supervisor_killed_at_its_very_start_leaves_a_run_that_can_be_settled(
    launched: Launched,
) -> None:
    directory, supervisor = launched("import time; time.sleep(600)", owner=this_process())
    supervisor.kill()
    supervisor.wait()
    assert settle(directory).cause == "killed"


def test_the_end_of_the_owner_ends_the_training_in_good_order(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        directory, _ = launched(SAVES_AND_PRINTS, owner=identify(owner.pid))
        eventually((tmp_path / "ready").exists)
        owner.kill()
        # Not reaped: that it has ended has to do.
        record = ended(directory)
    assert (record.cause, record.code) == ("stopped", 0)
    assert record.stop is not None
    assert record.stop.by == "owner"
    assert (tmp_path / "checkpoint").exists()


def test_a_run_whose_owner_is_gone_before_its_start_is_not_started(
    prepared: Prepared, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        directory = prepared("open('ready', 'w')", owner=identify(owner.pid))
        owner.kill()
    start(directory).wait()
    record = ended(directory)
    assert record.cause == "stopped"
    assert record.stop is not None
    assert record.stop.by == "owner"
    assert not (tmp_path / "ready").exists()


@pytest.mark.thorough
def test_two_who_settle_at_once_agree(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, supervisor = launched(FAMILY + "time.sleep(600)")
    eventually((tmp_path / "family").exists)
    supervisor.kill()
    supervisor.wait()
    code = (
        "import sys; from vinedresser.infra.supervise.launcher import settle; "
        "print(settle(sys.argv[1], grace=0.2))"
    )
    settlers = [
        subprocess.Popen([sys.executable, "-c", code, directory], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [settler.communicate(timeout=30)[0] for settler in settlers]
    assert "killed" in answers[0]
    assert answers[0] == answers[1]
    os.kill(int((tmp_path / "family").read_text().split()[2]), signal.SIGKILL)


def test_a_living_run_is_not_settled(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, _ = launched(SAVES_AND_PRINTS)
    eventually((tmp_path / "ready").exists)
    assert supervisor_alive(directory)
    with pytest.raises(StillRunning, match="its supervisor is alive"):
        settle(directory)
    assert identify(trainer_pid(directory)) is not None


@pytest.mark.thorough
def test_a_second_supervisor_is_refused(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, first = launched(SAVES_AND_PRINTS)
    with pytest.raises(LaunchError, match="already supervised"):
        start(directory)
    second = subprocess.run(
        [sys.executable, "-P", "-m", "vinedresser.infra.supervise.supervisor", directory],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 1
    assert f"{directory}: already has a supervisor" in second.stderr
    assert first.poll() is None


def test_a_run_is_started_once(launched: Launched) -> None:
    directory, supervisor = launched()
    supervisor.wait()
    with pytest.raises(LaunchError, match="already started"):
        start(directory)


def test_orphans_that_end_leave_no_zombies(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    code = """
import os, pathlib, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.wait()
pathlib.Path("ready").touch()
time.sleep(600)
"""
    directory, supervisor = launched(code)
    eventually((tmp_path / "ready").exists)
    pid = trainer_pid(directory)
    eventually(lambda: descendants(supervisor.pid) == [pid] and not zombies_of(supervisor.pid))


def zombies_of(parent: int) -> list[str]:
    """Return the states of the children of a process that have ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if re.search(rf"^PPid:\t{parent}$", text, re.MULTILINE):
            found += re.findall(r"^State:\t(Z.*)$", text, re.MULTILINE)
    return found
