"""A run that is over its limit of time or memory is stopped, and says so."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.infra.supervise.supervised import ended
from tests.infra.supervise.test_endings import SAVES
from vinedresser.objects import LocalStorage
from vinedresser.store.records import LaunchSettings
from vinedresser.store.status import run_status

Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]

# Two processes of 60 MB each, which none of them exceeds alone; the pages are not shared.
GREEDY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.fork()
held = bytearray(os.urandom(60_000_000))
while True:
    time.sleep(0.01)
"""
# As much in each of three processes, but the same memory.
SHARING = """
import os, time
held = bytearray(os.urandom(60_000_000))
children = [os.fork() for _ in range(2)] if os.fork() else []
time.sleep(2.5)
"""


@pytest.mark.thorough
def test_a_run_over_its_time_limit_saves_and_is_stopped(launched: Launched, tmp_path: Path) -> None:
    directory, _ = launched(SAVES, time_limit=1.2)
    record = ended(directory)
    assert record.cause == "stopped"
    assert record.stop is not None
    assert record.stop.by == "limit"
    assert record.reason == "over its time limit of 1.2 s (run.time_limit)"
    assert (tmp_path / "checkpoint").read_text() == "saved"
    assert run_status(LocalStorage(directory)).words == "stopped by its limit"


@pytest.mark.thorough
def test_the_processes_of_a_run_share_its_memory_limit(launched: Launched) -> None:
    record = ended(launched(GREEDY, memory_limit="100 MB")[0])
    assert record.stop is not None
    assert record.stop.by == "limit"
    assert record.reason.endswith("GB, over its memory limit of 100 MB (run.memory_limit)")


@pytest.mark.thorough
def test_memory_that_processes_share_counts_once(launched: Launched) -> None:
    record = ended(launched(SHARING, memory_limit="120 MB")[0])
    assert record.cause == "finished", record.reason


def test_a_run_within_its_limits_finishes(launched: Launched) -> None:
    record = ended(launched("print('done')", time_limit="1 h", memory_limit="8 GB")[0])
    assert record.cause == "finished"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"time_limit": "soon"}, "time_limit: must be a time such as"),
        ({"time_limit": 0}, "time_limit: must be above 0 seconds, not 0"),
        ({"memory_limit": "8"}, "memory_limit: must be a size such as"),
        ({"memory_limit": "8 GB", "launcher": "mpi"}, "memory_limit: not supported with the"),
    ],
)
def test_an_invalid_limit_is_named(limits: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LaunchSettings(**limits)  # type: ignore[arg-type]
