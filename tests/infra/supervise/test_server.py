"""Supervisors that one process forks are as independent as those that are started one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.children import children_of
from vinedresser.errors import LaunchError
from vinedresser.infra.supervise.launcher import request_stop, settle, supervise, supervisor_alive
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, SupervisorRecord, read_record, run_lock

Eventually = Callable[[Callable[[], object]], None]
Prepared = Callable[..., Path]

WAITS = "import time; print('begun', flush=True); time.sleep(600)"
OWNER = """
import sys
from dataclasses import asdict
from vinedresser.infra.supervise.launcher import prepare_run, supervise
from vinedresser.processes import this_process
from vinedresser.store.records import LaunchRecord, new_run

directory, script = sys.argv[1:]
launch = LaunchRecord(argv=[sys.executable, script], cwd="/", owner=asdict(this_process()))
prepare_run(directory, new_run("run"), launch)
supervise(directory)
"""


def servers(owner: int | None = None) -> list[psutil.Process]:
    """Return the processes that fork supervisors for a process, by default for this one."""
    return children_of("vinedresser.infra.supervise.supervisor.server", owner)


def end(directory: Path) -> ExitRecord:
    record = read_record(LocalStorage(directory), ExitRecord)
    assert record is not None
    return record


def supervisor(directory: Path) -> int:
    record = read_record(LocalStorage(directory), SupervisorRecord)
    assert record is not None
    return int(record.supervisor["pid"])


@contextmanager
def training(directory: Path, eventually: Eventually) -> Iterator[threading.Thread]:
    """Provide the thread that waits for a training, which has begun."""
    beside = threading.Thread(target=supervise, args=(directory,))
    beside.start()
    try:
        eventually((directory / "supervisor.json").exists)
        log = directory / "log.txt"
        eventually(lambda: log.exists() and "begun" in log.read_text())
        yield beside
    finally:
        request_stop(directory, reason="the test is over")
        beside.join()


def test_one_process_forks_the_supervisors_of_runs_side_by_side(
    prepared: Prepared, eventually: Eventually
) -> None:
    long = prepared(WAITS, name="long")
    with training(long, eventually) as beside:
        for name, code, cause in [("short", "", "finished"), ("wrong", "1/0", "crashed")]:
            short = prepared(code, name=name)
            supervise(short)
            assert end(short).cause == cause
        assert beside.is_alive()
        assert supervisor_alive(long)
        assert len(servers()) == 1
    assert end(long).cause == "stopped"


def test_a_run_whose_end_was_awaited_has_no_supervisor(prepared: Prepared) -> None:
    # Otherwise, with a damaged exit record, it would seem to go on.
    for name in ("one", "two", "three"):
        run = prepared("", name=name)
        supervise(run)
        assert not supervisor_alive(run)


def test_a_run_is_started_once(prepared: Prepared) -> None:
    directory = prepared()
    supervise(directory)
    with pytest.raises(LaunchError, match="already started"):
        supervise(directory)


def test_supervisors_outlive_the_process_that_forked_them(
    prepared: Prepared, eventually: Eventually
) -> None:
    first, second = prepared(WAITS, name="first"), prepared(name="second")
    with training(first, eventually) as beside:
        (server,) = servers()
        server.kill()
        server.wait()
        supervise(second)
        assert end(second).cause == "finished"
        assert beside.is_alive()
        assert supervisor_alive(first)
    assert end(first).cause == "stopped"


def test_a_run_whose_supervisor_was_never_forked_has_ended(
    prepared: Prepared, eventually: Eventually
) -> None:
    supervise(prepared(name="first"))
    directory = prepared(name="second")
    (server,) = servers()
    server.suspend()
    beside = threading.Thread(target=supervise, args=(directory,))
    beside.start()
    eventually(lambda: run_lock.was_taken(directory))
    server.kill()
    beside.join()
    assert settle(directory).cause in ("killed", "finished")


def test_waiting_ends_with_a_killed_supervisor(prepared: Prepared, eventually: Eventually) -> None:
    directory = prepared(WAITS, grace=0.5)
    with training(directory, eventually) as beside:
        os.kill(supervisor(directory), signal.SIGKILL)
        beside.join()
        assert not (directory / "exit.json").exists()
        assert settle(directory).cause == "killed"


def test_trainings_have_the_environment_of_who_asks(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os; print(os.environ.get('VINEDRESSER_TEST_MARK'))"
    for name, mark in [("first", "old"), ("second", "new")]:
        monkeypatch.setenv("VINEDRESSER_TEST_MARK", mark)
        directory = prepared(code, name=name)
        supervise(directory)
        assert mark in (directory / "log.txt").read_text()


@pytest.mark.thorough
def test_a_killed_owner_leaves_nothing_behind(tmp_path: Path, eventually: Eventually) -> None:
    script = tmp_path / "script.py"
    script.write_text(WAITS)
    directory = tmp_path / "run"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, directory, script])
    eventually((directory / "supervisor.json").exists)
    family = [*servers(owner.pid), psutil.Process(supervisor(directory))]
    assert len(family) == 2
    owner.kill()
    owner.wait()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    stop = end(directory).stop
    assert stop is not None
    assert stop.by == "owner"
