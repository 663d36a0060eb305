"""A local cache of objects on S3: bounded, and shared by all processes of a user.

It has blocks of 4 MiB, each a file that is named for the URL, size and ETag of its object, and ends
in the CRC32C of its content. So a block is never that of another version, and damage is noticed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

import fastcrc

from vinedresser.data.sources.augmented import DescribedObject
from vinedresser.data.sources.base import DataObject, WrappedObject
from vinedresser.errors import ConfigError
from vinedresser.objects import is_remote
from vinedresser.objects.files import temporary_name
from vinedresser.plain_logs import plain_logger
from vinedresser.quantities import parse_size

__all__ = ["CACHE_VARIABLE", "CachedObject", "cache_folder", "cached"]

CACHE_VARIABLE = "VINEDRESSER_DATA_CACHE"
"""Environment variable with the maximum size of the cache, such as 20GB; unset: there is none."""

_BLOCK = 4 << 20
_CHECKSUM = 4
# Locks under which blocks are loaded: enough that different blocks rarely share one.
_LOCKS = 1024
# Share of the maximum size that is left after old blocks were removed.
_KEPT = 7 / 8
_SIZE = "size"

_log = plain_logger(__name__)


@dataclass(frozen=True)
class CachedObject(WrappedObject):
    """An object that is read through the cache.

    Args:
        most: maximum number of bytes in it.
    """

    folder: str
    most: int

    def read(self, start: int, stop: int) -> bytes:
        """See `DataObject.read`."""
        if start >= stop:
            return b""
        first = start // _BLOCK
        content = b"".join(self._block(one) for one in range(first, -(-stop // _BLOCK)))
        return content[start - first * _BLOCK : stop - first * _BLOCK]

    def _block(self, number: int) -> bytes:
        """Return a block, from the cache if it is there; else load it, while others wait for it."""
        start = number * _BLOCK
        stop = min(start + _BLOCK, self.size)
        name = f"{self.uri}\0{self.size}\0{self.version}\0{number}"
        digest = hashlib.sha256(name.encode()).hexdigest()
        path = os.path.join(self.folder, digest[:2], digest)
        content = _known(path, stop - start)
        if content is not None:
            return content
        with _locked(self.folder, f"lock-{int(digest, 16) % _LOCKS}"):
            content = _known(path, stop - start)
            if content is None:
                content = self.inner.read(start, stop)
                self._keep(path, content)
        return content

    def _keep(self, path: str, content: bytes) -> None:
        """Store a block, and remove those that were not read for longest if there is no room."""
        needed = len(content) + _CHECKSUM
        if needed > self.most:
            return
        with _locked(self.folder, _SIZE) as descriptor:
            if descriptor is None:
                return
            try:
                size = _size(descriptor, self.folder)
                if size + needed > self.most:
                    size = _make_room(self.folder, int(_KEPT * self.most) - needed)
                # A kill before the block is there leaves the sum too large, never too small.
                os.pwrite(descriptor, b"%20d" % (size + needed), 0)
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                temporary = os.path.join(os.path.dirname(path), temporary_name("block"))
                with open(temporary, "xb") as file:
                    file.write(content)
                    file.write(_checksum(content))
                os.replace(temporary, path)
            except OSError as error:
                _warn(f"{self.folder}: {error.strerror}")


def cache_folder() -> str:
    """Return the folder of what is kept about training data, for this user."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(folder, "vinedresser", "data")


def cached(objects: list[DataObject]) -> list[DataObject]:
    """Return objects that are read through the cache if there is one and they are on S3.

    Raises:
        ConfigError: the maximum size of the cache is invalid.
    """
    text = os.environ.get(CACHE_VARIABLE)
    if not text:
        return objects
    try:
        most = parse_size(text)
    except ValueError as error:
        raise ConfigError(f"{CACHE_VARIABLE}: {error}") from error
    folder = os.path.join(cache_folder(), "blocks")

    def through_cache(one: DataObject) -> DataObject:
        if isinstance(one, DescribedObject):
            return replace(one, inner=through_cache(one.inner))
        return CachedObject(one, folder, most) if is_remote(one.uri) else one

    return [through_cache(one) for one in objects]


def _known(path: str, size: int) -> bytes | None:
    """Return a block that is in the cache and undamaged; else None."""
    try:
        with open(path, "rb") as file:
            stored = file.read()
        # It was read last.
        os.utime(path)
    except OSError:
        return None
    content = stored[:-_CHECKSUM]
    if len(content) != size or _checksum(content) != stored[-_CHECKSUM:]:
        return None
    return content


def _checksum(content: bytes) -> bytes:
    return int(fastcrc.crc32.iscsi(content)).to_bytes(_CHECKSUM, "little")


@contextmanager
def _locked(folder: str, name: str) -> Iterator[int | None]:
    """Hold the lock of a file in the cache; None if it cannot be had, which is warned of."""
    descriptor = -1
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(os.path.join(folder, name), flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        _warn(f"{folder}: {error.strerror}")
        if descriptor >= 0:
            os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _blocks(folder: str) -> list[tuple[int, int, str]]:
    """Return time of the last reading, size and path of each block, the oldest first."""
    found = []
    with os.scandir(folder) as folders:
        for entry in [one for one in folders if one.is_dir(follow_symlinks=False)]:
            with os.scandir(entry) as blocks:
                for block in blocks:
                    status = block.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, status.st_size, block.path))
    return sorted(found)


def _size(descriptor: int, folder: str) -> int:
    """Return the number of bytes in the cache, which must be locked."""
    try:
        return int(os.pread(descriptor, 20, 0))
    except ValueError:
        return sum(size for _, size, _ in _blocks(folder))


def _make_room(folder: str, most: int) -> int:
    """Remove the oldest blocks until there are at most some bytes; return how many there are."""
    blocks = _blocks(folder)
    left = sum(size for _, size, _ in blocks)
    for _, size, path in blocks:
        if left <= most:
            break
        os.unlink(path)
        left -= size
    return left


@lru_cache(maxsize=64)
def _warn(reason: str) -> None:
    """Warn once that the cache is not used."""
    _log.warning("the cache of training data cannot be used: %s", reason)
