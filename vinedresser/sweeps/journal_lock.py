"""Detects a running sweep by the lock on its journal, without Optuna."""

from __future__ import annotations

import os
from pathlib import Path

from vinedresser.store.file_lock import is_locked


def is_held(path: Path) -> bool:
    """Return whether a living process holds a sweep's journal."""
    try:
        # Opening a FIFO would block otherwise.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)
