"""Kernel locks on files, and probes of them that refuse nobody.

A probe takes the lock in shared mode for microseconds, since the kernel does not tell otherwise. So
whoever takes a lock tries for a moment before it counts as held.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from vinedresser.objects.files import open_file

__all__ = ["is_file_locked", "take_lock"]

# A fork of a supervisor that is killed before the fork becomes the trainer holds its lock for
# milliseconds, a probe for microseconds. A refusal must last longer than that.
_PATIENCE, _LOOK = 0.2, 0.001
# Such as NFS without its lock service, or Lustre that is mounted without flock.
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def take_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock a file; return False if another process holds it for longer than a probe.

    Args:
        descriptor: descriptor of the file; the lock is released when all copies are closed.
        kind: ``fcntl.LOCK_EX`` or ``fcntl.LOCK_SH``.

    Raises:
        OSError: the file cannot be locked.
    """
    deadline = time.monotonic() + _PATIENCE
    while not _try(descriptor, kind):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK)
    return True


def is_file_locked(path: Path) -> bool:
    """Return whether a living process holds the exclusive lock of the file at a path.

    Raises:
        NotAFile: there is something else, such as a symbolic link.
        OSError: the file cannot be opened or locked.
    """
    try:
        descriptor = open_file(path.parent, path.name)
    except FileNotFoundError:
        return False
    try:
        # Closed at once: it may have the lock now.
        return not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        text = f"its file system cannot lock files (flock): {error.strerror}"
        raise OSError(error.errno, text) from error
    return True
