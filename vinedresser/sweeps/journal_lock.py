"""Whether a sweep is being run: its journal is locked as long as it is. Optuna is not needed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["is_held"]


def is_held(path: Path) -> bool:
    """Say whether a process that runs the sweep of a journal lives."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
