"""Files on a disk or a mounted file system."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from vinedresser.errors import KeyMissing, NotAFile, SourceChanged, StoreError

__all__ = ["LocalObject", "find_file"]


@dataclass(frozen=True)
class LocalObject:
    """See `DataObject`; opened anew for each read, so that it can be sent to other processes."""

    uri: str
    size: int
    version: str

    def read(self, start: int, stop: int) -> bytes:
        """See `DataObject.read`."""
        try:
            descriptor = os.open(self.uri, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _translated(self.uri, error) from error
        try:
            if _version(os.fstat(descriptor)) != self.version:
                raise SourceChanged(f"{self.uri}: the file was changed while it was in use")
            content = _read_all(descriptor, start, stop)
        except StoreError:
            raise
        except OSError as error:
            raise _translated(self.uri, error) from error
        finally:
            os.close(descriptor)
        if len(content) < stop - start:
            raise SourceChanged(f"{self.uri}: the file was cut off while it was in use")
        return content


def find_file(path: str) -> LocalObject:
    """Return a file.

    Raises:
        KeyMissing: there is none.
        NotAFile: it is something else, such as a FIFO.
        StoreError: it cannot be examined.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise _translated(path, error) from error
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(f"{path}: not a file")
    return LocalObject(path, found.st_size, _version(found))


def _version(found: os.stat_result) -> str:
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"


def _read_all(descriptor: int, start: int, stop: int) -> bytes:
    """Read a range, less if the file ends earlier; a single pread returns at most 2 GiB."""
    parts = []
    while part := os.pread(descriptor, stop - start, start):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _translated(path: str, error: OSError) -> StoreError:
    if isinstance(error, FileNotFoundError):
        return KeyMissing(f"{path}: no such file")
    return StoreError(f"{path}: {error.strerror or error}")
