"""Locks of runs and sweeps that others look at all the time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from vinedresser.errors import StillRunning, StoreError
from vinedresser.objects.file_lock import is_file_locked
from vinedresser.store.records import run_lock
from vinedresser.sweeps.journal import SweepJournal

STARTS = 1000


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    said = r"journal\.log: its file system cannot lock files \(flock\): No locks available$"
    with pytest.raises(StoreError, match=said):
        SweepJournal(tmp_path / "journal.log")


PROBES = """
import sys
from pathlib import Path
from vinedresser.objects.file_lock import is_file_locked
from vinedresser.store.records import run_lock

folder = Path(sys.argv[1])
while True:
    run_lock.is_held(folder)
    is_file_locked(folder / "journal.log")
    (folder / sys.argv[2]).touch()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with both locks, which two processes probe without a pause."""
    lock = run_lock.acquire(tmp_path)
    assert lock is not None
    os.close(lock)
    SweepJournal(tmp_path / "journal.log").close()
    names = ("probed-0", "probed-1")
    started = [
        subprocess.Popen([sys.executable, "-c", PROBES, str(tmp_path), name]) for name in names
    ]
    until(lambda: all((tmp_path / name).exists() for name in names), "the probes")
    yield tmp_path
    for process in started:
        assert process.poll() is None
        process.kill()
        process.wait()


@pytest.mark.thorough
def test_no_probe_refuses_a_start(folder: Path) -> None:
    for _ in range(STARTS):
        lock = run_lock.acquire(folder)
        assert lock is not None
        os.close(lock)
        SweepJournal(folder / "journal.log").close()


@pytest.mark.thorough
def test_a_held_lock_is_refused_and_seen(folder: Path) -> None:
    lock = run_lock.acquire(folder)
    assert lock is not None
    journal = SweepJournal(folder / "journal.log")
    assert run_lock.is_held(folder)
    assert is_file_locked(folder / "journal.log")
    assert run_lock.acquire(folder) is None
    with pytest.raises(StillRunning, match="another process is running this sweep"):
        SweepJournal(folder / "journal.log")
    journal.close()
    os.close(lock)
    assert not run_lock.is_held(folder)
    assert not is_file_locked(folder / "journal.log")
