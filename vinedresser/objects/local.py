"""Storage in a local directory: objects are files, atomic by rename."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from vinedresser.errors import (
    KeyMissing,
    KeyTaken,
    NotAFile,
    RunRemoved,
    StoreError,
    StoreFull,
)
from vinedresser.objects.base import TEMPORARY, Buffer, Span, check_key
from vinedresser.objects.files import (
    check_obstacles,
    make_folder,
    open_file,
    open_folder,
    temporary_name,
)

# The kernel takes at most IOV_MAX buffers in one writev.
_MOST_PARTS = min(os.sysconf("SC_IOV_MAX"), 1024)
# Bytes that are drawn before they are written: few enough to stay in the processor's cache if the
# producer has just read them.
_BATCH = 2 << 20
# Read length above which the size of the file is checked before memory is allocated.
_MUCH = 64 << 20
# No space on the device, in the quota, or below the process's limit of file sizes.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LocalStorage:
    """A directory as object storage.

    A put writes a temporary file in the same directory and renames it (or links it, if exclusive),
    so that neither readers nor crashes see half an object. Data is not synced to the device: it
    survives the death of any process, but not of the machine. Only regular files are objects, and
    no symbolic link below the directory is followed.

    Args:
        root: the directory, created by the first put. A relative path is resolved now, so a later
            change of the working directory has no effect.
        anchor: key of an object without which the directory counts as removed. Then puts fail, and
            do not create the directory again, except for the exclusive put of the anchor itself.
            "": there is none.
    """

    def __init__(self, root: str | os.PathLike[str], *, anchor: str = "") -> None:
        self._location = os.fspath(root)
        self._anchor = anchor
        self._root = os.path.abspath(self._location)

    @property
    def location(self) -> str:
        """The directory as given."""
        return self._location

    @property
    def removed(self) -> bool:
        """Whether the anchor is missing; False if that cannot be determined."""
        if not self._anchor:
            return False
        try:
            os.lstat(os.path.join(self._root, self._anchor))
        except FileNotFoundError:
            return True
        except OSError:
            # A put meets the same error, and reports it.
            return False
        return False

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        """See `Storage.put`.

        Raises:
            RunRemoved: the anchor is missing.
        """
        check_key(key)
        if self.removed and not (exclusive and key == self._anchor):
            raise RunRemoved(
                f"{self._root}: the run directory was removed: it has no {self._anchor}; nothing "
                "more is written to it"
            )
        parent, _, name = key.rpartition("/")
        temporary = temporary_name(name)
        with self._translated(key):
            try:
                folder = open_folder(self._root, parent)
            except FileNotFoundError:
                self._make(parent)
                folder = open_folder(self._root, parent)
            try:
                _write(temporary, folder, parts)
                if exclusive:
                    os.link(
                        temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False
                    )
                else:
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                # Missing after a rename; left over after a link or a failure. If it cannot be
                # removed, it does no harm: readers ignore it.
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                os.close(folder)

    def _make(self, folder: str) -> None:
        """Make a folder.

        Raises:
            OSError: it cannot be made for another reason.
        """
        try:
            make_folder(self._root, folder)
        except FileNotFoundError as error:
            raise StoreError(f"{self._root}: this folder cannot be made here") from error

    def sync(self, key: str) -> None:
        """Write an object and its name to the device, so that it survives a failure of power.

        Raises:
            KeyMissing: no such object.
            StoreError: the device refused.
        """
        check_key(key)
        with self._translated(key):
            folder = open_folder(self._root, key.rpartition("/")[0])
            for descriptor in (open_file(self._root, key), folder):
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.get`."""
        check_key(key)
        with self._translated(key):
            descriptor = open_file(self._root, key)
            try:
                if length is None or length > _MUCH:
                    rest = max(os.fstat(descriptor).st_size - start, 0)
                    length = rest if length is None else min(length, rest)
                try:
                    return _read(descriptor, start, length)
                except MemoryError as error:
                    raise MemoryError(
                        f"{self._root}/{key}: {length} bytes do not fit into memory"
                    ) from error
            finally:
                os.close(descriptor)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `Storage.get_many`; anything but a regular file is missing."""
        return [self._get_or_none(key) for key in keys]

    def get_spans(self, spans: Iterable[Span]) -> Iterator[bytes | None]:
        """See `Storage.get_spans` and `get_many`; there is no read-ahead."""
        return (self._get_or_none(*span) for span in spans)

    def _get_or_none(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        try:
            return self.get(key, start, length)
        except (KeyMissing, NotAFile):
            return None

    def exists(self, key: str) -> bool:
        """See `Storage.exists`; anything but a regular file is not an object."""
        check_key(key)
        parent, _, name = key.rpartition("/")
        try:
            with self._translated(key):
                folder = open_folder(self._root, parent)
                try:
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                finally:
                    os.close(folder)
        except (KeyMissing, NotAFile):
            return False
        return stat.S_ISREG(found.st_mode)

    def folders(self, prefix: str = "") -> list[str]:
        """See `Storage.folders`; includes empty directories."""
        folder, _, begin = prefix.rpartition("/")
        _check_folder(folder)
        with self._scanned(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return sorted(name[len(begin) :] for name in names if name.startswith(begin))

    def list(self, prefix: str, after: str = "") -> list[str]:
        """See `Storage.list`; includes links and other files that cannot be read."""
        folder = prefix.rpartition("/")[0]
        _check_folder(folder)
        return sorted(key for key in self._walk(folder) if key.startswith(prefix) and key > after)

    def delete(self, key: str) -> None:
        """See `Storage.delete`."""
        check_key(key)
        parent, _, name = key.rpartition("/")
        with self._translated(key), suppress(FileNotFoundError):
            folder = open_folder(self._root, parent)
            try:
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)

    def delete_empty(self, key: str) -> None:
        """Remove an empty folder; do nothing if it is not empty, or missing.

        Args:
            key: the folder; a concurrent put into it may fail.

        Raises:
            StoreError: the device refused.
        """
        check_key(key)
        parent, _, name = key.rpartition("/")
        with self._translated(key):
            try:
                folder = open_folder(self._root, parent)
            except FileNotFoundError:
                return
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                    raise
            finally:
                os.close(folder)

    def _walk(self, folder: str) -> Iterator[str]:
        """Yield the keys of the objects below a folder."""
        prefix = f"{folder}/" if folder else ""
        with self._scanned(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in found:
            if is_folder:
                yield from self._walk(f"{prefix}{name}")
            elif not name.startswith(TEMPORARY):
                yield prefix + name

    @contextmanager
    def _scanned(self, folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        """Open a folder and list it; a missing one is empty.

        Raises:
            NotAFile: it is something else, such as a file or a symbolic link.
            StoreError: it cannot be read.
        """
        with self._translated(f"{folder}/" if folder else ""):
            try:
                descriptor = open_folder(self._root, folder)
            except FileNotFoundError:
                yield iter(())
                return
            try:
                with os.scandir(descriptor) as entries:
                    yield entries
            finally:
                os.close(descriptor)

    def _translated(self, key: str) -> _Translation:
        """Raise errors of the operating system as `StoreError`, with the path in the message."""
        return _Translation(self._root, key)


class _Translation:
    """Raises errors of the operating system as `StoreError`; see `LocalStorage._translated`.

    Not a generator: from Python 3.12 on, the error that a generator's context translates is part
    of a reference cycle. Missing objects are common, and each would keep the tensors of the
    training that is above it on the stack until the next garbage collection.
    """

    def __init__(self, root: str, key: str) -> None:
        self._root = root
        self._key = key

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Translate an error."""
        if not isinstance(error, OSError) or isinstance(error, StoreError):
            return
        path = f"{self._root}/{self._key}"
        check_obstacles(error, self._root, self._key)
        if isinstance(error, FileNotFoundError):
            raise KeyMissing(f"{path}: no such object") from error
        if isinstance(error, FileExistsError):
            raise KeyTaken(f"{path}: already exists") from error
        kind_of_error = StoreFull if error.errno in _FULL else StoreError
        raise kind_of_error(f"{path}: {error.strerror or error}") from error


def _check_folder(folder: str) -> None:
    """Check that a folder, "" for the root, is inside its storage."""
    if folder:
        check_key(folder)


def _read(descriptor: int, start: int, length: int) -> bytes:
    """Read some bytes at an offset, fewer if the file ends earlier."""
    chunk = os.pread(descriptor, length, start)
    if len(chunk) == length or not chunk:
        return chunk
    # A single pread returns at most 2 GiB.
    chunks = [chunk]
    got = len(chunk)
    while got < length and (chunk := os.pread(descriptor, length - got, start + got)):
        chunks.append(chunk)
        got += len(chunk)
    return b"".join(chunks)


def _write(name: str, folder: int, parts: Iterable[Buffer]) -> None:
    """Write buffers to a new file in an open folder without joining them first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o644, dir_fd=folder)
    try:
        views: list[memoryview] = []
        size = 0
        for part in parts:
            view = memoryview(part)
            # An empty view cannot be cast.
            if view.nbytes:
                views.append(view.cast("B"))
                size += view.nbytes
            if size >= _BATCH or len(views) == _MOST_PARTS:
                _write_all(descriptor, views)
                views, size = [], 0
        _write_all(descriptor, views)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, views: list[memoryview]) -> None:
    """Write views of bytes, with as many system calls as needed."""
    while views:
        written = os.writev(descriptor, views)
        done = 0
        while done < len(views) and written >= len(views[done]):
            written -= len(views[done])
            done += 1
        views = views[done:]
        if written:
            views[0] = views[0][written:]
