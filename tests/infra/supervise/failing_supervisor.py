"""A supervisor of a short training, which prints and leaves a file outside its run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vinedresser.infra.supervise.launcher import prepare_run
from vinedresser.infra.supervise.supervisor.__main__ import main
from vinedresser.store.records import LaunchRecord, new_run, run_lock

__all__ = ["TRAINED", "prepare", "supervise"]

TRAINED = "0 1 2"
_TRAINING = """
import pathlib, sys
for step in range(3):
    print(step, flush=True)
pathlib.Path(sys.argv[1]).write_text("0 1 2")
"""


def prepare(folder: Path) -> None:
    """Prepare the run as a launcher does, which has held its lock."""
    argv = [sys.executable, "-S", "-c", _TRAINING, str(folder.with_suffix(".trained"))]
    prepare_run(folder, new_run(folder.name), LaunchRecord(argv=argv, cwd="/", grace=1.0))
    lock = run_lock.acquire(folder)
    assert lock is not None
    os.close(lock)


def supervise(folder: Path) -> int:
    """Supervise the run; return the exit code."""
    return main([str(folder)])
