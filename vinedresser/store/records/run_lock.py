"""The lock that limits a run to one supervisor, and shows whether it is alive.

The kernel releases it when its holder dies. The launcher takes it and passes the descriptor to the
supervisor, so the run never appears abandoned in between.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinedresser.objects.file_lock import is_file_locked, take_lock
from vinedresser.objects.files import open_file

__all__ = ["NAME", "acquire", "is_held", "peek", "share", "was_taken"]

NAME = "supervisor.lock"


def acquire(directory: Path) -> int | None:
    """Take the lock of a run directory.

    Returns:
        Its descriptor, not inheritable; the lock is released when all copies are closed. None if
        another process holds it.

    Raises:
        NotAFile: the lock is not a file.
        OSError: the directory is missing or not writable.
    """
    descriptor = _lock(directory, fcntl.LOCK_EX)
    if descriptor is not None:
        with _closed_on_failure(descriptor):
            os.write(descriptor, b"taken\n")
    return descriptor


def was_taken(directory: Path) -> bool:
    """Return whether any process, alive or not, ever took the lock."""
    try:
        return (directory / NAME).lstat().st_size > 0
    except FileNotFoundError:
        return False


def peek(directory: Path) -> int:
    """Open the lock of a supervised run without taking it, and return the descriptor.

    The file is never replaced: when it has no link any more, the run directory was removed, and
    not only moved.

    Raises:
        NotAFile: the lock is not a file.
        OSError: it cannot be opened.
    """
    return open_file(directory, NAME)


def share(directory: Path) -> int | None:
    """Take the lock in shared mode, which keeps supervisors from starting.

    Returns:
        A descriptor to close; None if a supervisor is alive.

    Raises:
        NotAFile: the lock is not a file.
        OSError: the directory is missing or not writable.
    """
    return _lock(directory, fcntl.LOCK_SH)


def is_held(directory: Path) -> bool:
    """Return whether a supervisor of this run is alive.

    Raises:
        NotAFile: the lock is not a file.
        OSError: it cannot be opened.
    """
    return is_file_locked(directory / NAME)


def _lock(directory: Path, kind: int) -> int | None:
    descriptor = open_file(directory, NAME, os.O_RDWR | os.O_CREAT)
    with _closed_on_failure(descriptor):
        taken = take_lock(descriptor, kind)
    if not taken:
        os.close(descriptor)
    return descriptor if taken else None


@contextmanager
def _closed_on_failure(descriptor: int) -> Iterator[None]:
    """Release the lock if it cannot be returned: the run would look supervised for ever."""
    try:
        yield
    except OSError:
        os.close(descriptor)
        raise
