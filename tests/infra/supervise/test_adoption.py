"""A run whose owner is killed goes on for whoever adopts it in time, and for nobody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vinedresser.infra.supervise.launcher import adopt, wait_for_exit
from vinedresser.objects import LocalStorage
from vinedresser.processes import identify, this_process
from vinedresser.store.records import owner_of

PATIENCE = 60.0
# It ends when it is told to by a file, or asked to by a signal.
WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
open('ready', 'w').close()
while not os.path.exists('end'):
    time.sleep(0.01)
"""
# Adopts a run, says whether it could, and waits to be killed.
HEIR = """
import sys, time
from vinedresser.infra.supervise.launcher import adopt
print(adopt(sys.argv[1]), flush=True)
time.sleep(600)
"""

Eventually = Callable[[Callable[[], object]], None]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process for which a run goes on."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_an_adopted_run_comes_to_its_end(
    tmp_path: Path, launched: Launched, owner: subprocess.Popen[bytes], eventually: Eventually
) -> None:
    directory, _ = launched(WAITS, owner=identify(owner.pid), patience=PATIENCE)
    eventually((tmp_path / "ready").exists)
    assert not adopt(directory), "its owner lives"
    owner.kill()
    owner.wait()
    assert adopt(directory)
    assert adopt(directory), "it is ours already"
    assert owner_of(LocalStorage(directory)) == vars(this_process())
    (tmp_path / "end").touch()
    end = wait_for_exit(directory)
    assert end is not None
    assert end.cause == "finished"
    assert not adopt(directory), "it is over"


def test_an_heir_may_have_an_heir(
    tmp_path: Path, launched: Launched, owner: subprocess.Popen[bytes], eventually: Eventually
) -> None:
    directory, _ = launched(WAITS, owner=identify(owner.pid), patience=PATIENCE)
    eventually((tmp_path / "ready").exists)
    owner.kill()
    owner.wait()
    command = [sys.executable, "-c", HEIR, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as heir:
        assert heir.stdout is not None
        assert heir.stdout.readline() == "True\n"
        assert not adopt(directory)
        heir.kill()
    assert adopt(directory)
    (tmp_path / "end").touch()
    end = wait_for_exit(directory)
    assert end is not None
    assert end.cause == "finished"


def test_what_nobody_adopts_in_time_is_stopped(
    tmp_path: Path, launched: Launched, owner: subprocess.Popen[bytes], eventually: Eventually
) -> None:
    directory, _ = launched(WAITS, owner=identify(owner.pid), patience=0.2)
    eventually((tmp_path / "ready").exists)
    owner.kill()
    owner.wait()
    end = wait_for_exit(directory)
    assert end is not None
    assert end.stop is not None
    assert (end.cause, end.stop.by) == ("stopped", "owner")
    assert not adopt(directory)


def test_a_run_that_is_to_end_with_its_owner_is_not_adopted(
    tmp_path: Path, launched: Launched, owner: subprocess.Popen[bytes], eventually: Eventually
) -> None:
    directory, _ = launched(WAITS, owner=identify(owner.pid))
    eventually((tmp_path / "ready").exists)
    owner.kill()
    owner.wait()
    assert not adopt(directory)
    end = wait_for_exit(directory)
    assert end is not None
    assert end.cause == "stopped"
