"""The lock that one process holds while it runs a pruning or a monitor."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinedresser.errors import NotAFile, StillRunning, StoreError
from vinedresser.objects.file_lock import take_lock
from vinedresser.objects.files import open_file


@contextmanager
def process_lock(path: Path, word: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which ends with this process at the latest.

    Args:
        path: the file, created if missing.
        word: what it locks, for the message.
        shared: others may hold it, too, if theirs are shared.

    Raises:
        StillRunning: another process holds it.
        NotAFile: there is something else, such as a symbolic link.
        StoreError: the file cannot be opened.
    """
    try:
        descriptor = open_file(path.parent, path.name, os.O_RDWR | os.O_CREAT)
    except NotAFile:
        raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be locked: {error.strerror}") from error
    try:
        if not take_lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            raise StillRunning(f"{path}: another process runs this {word}")
        yield
    finally:
        os.close(descriptor)
