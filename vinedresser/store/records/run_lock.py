"""The lock by which a run has one supervisor at the most, and by which everybody knows if it lives.

The kernel releases it when its holder dies, however that happens. The launcher takes it and hands
it over with the descriptor, so there is no moment between in which the run looks deserted.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

__all__ = ["acquire", "is_held", "share", "was_taken"]

_NAME = "supervisor.lock"
# Whoever looks holds it for microseconds; the fork of a supervisor that is killed before the fork
# has become the trainer, for milliseconds. A refusal has to last longer than that.
_PATIENCE = 0.2


def acquire(directory: Path) -> int | None:
    """Take the lock of a run directory.

    Returns:
        Its descriptor, not inheritable; the lock is released when all copies are closed. None when
        somebody has it.

    Raises:
        OSError: the directory is not there or not writable.
    """
    descriptor = _lock(directory, fcntl.LOCK_EX)
    if descriptor is not None:
        os.write(descriptor, b"taken\n")
    return descriptor


def was_taken(directory: Path) -> bool:
    """Say whether anybody ever took the lock, alive or not."""
    try:
        return (directory / _NAME).stat().st_size > 0
    except FileNotFoundError:
        return False


def share(directory: Path) -> int | None:
    """Keep supervisors away for a while, together with others who do so.

    Returns:
        A descriptor to close; None when a supervisor lives.

    Raises:
        OSError: the directory is not there or not writable.
    """
    return _lock(directory, fcntl.LOCK_SH)


def is_held(directory: Path) -> bool:
    """Say whether a supervisor of this run lives."""
    try:
        descriptor = os.open(directory / _NAME, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(directory: Path, kind: int) -> int | None:
    descriptor = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + _PATIENCE
    while not _try(descriptor, kind):
        if time.monotonic() >= deadline:
            os.close(descriptor)
            return None
        time.sleep(0.01)
    return descriptor


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
