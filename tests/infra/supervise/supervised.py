"""Programs under supervisors, and what is recorded of them."""

from __future__ import annotations

from pathlib import Path

from vinedresser.infra.supervise.launcher import wait_for_exit
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, SupervisorRecord, read_record

# Ignores that it is told to end.
DEAF = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("ready").touch()
time.sleep(600)
"""
# Starts the run of its argument, and waits for its supervisor.
START = """
import sys
from vinedresser.infra.supervise.launcher import start
sys.exit(start(sys.argv[1]).wait())
"""


def ended(directory: Path) -> ExitRecord:
    """Wait for the end of a run; return its record."""
    record = wait_for_exit(directory, 60)
    assert record is not None
    return record


def trainer_pid(directory: Path) -> int:
    record = read_record(LocalStorage(directory), SupervisorRecord)
    assert record is not None
    return int(record.trainer["pid"])
