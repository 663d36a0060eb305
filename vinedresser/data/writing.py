"""Writing a data set: sharded TFRecords, resumed after a kill, with an index beside each part.

A part and its index, which is put behind it, are atomic. The parts depend on the records only: who
writes the same records again finds those that are complete, and does not put them a second time.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import fastcrc

from vinedresser.data.formats.base import Marks
from vinedresser.data.formats.example import encode_example
from vinedresser.data.formats.framed import BETWEEN_MARKS
from vinedresser.data.formats.tfrecord import framed
from vinedresser.data.index import index_name
from vinedresser.errors import ConfigError, StoreError
from vinedresser.objects import LocalStorage, Storage, open_storage
from vinedresser.objects.base import TEMPORARY, get_or_none
from vinedresser.objects.files import make_folder, open_folder

__all__ = ["PART_BYTES", "Written", "write"]

# S3 sends about 40 MB/s per connection, after 30 ms; and larger objects are put in several parts.
PART_BYTES = 64 << 20
# Parts that are put at a time, and bytes of unfinished parts in memory, in parts.
_CONCURRENT = 2
_MOST_OPEN = 4
# Readers leave out names that begin with a dot or an underscore, and take others for globs.
_CLASS = re.compile(r"[^._/*?\[\]\x00-\x1f\x7f][^/*?\[\]\x00-\x1f\x7f]{0,199}")

_OURS = re.compile(r"(?:[^/]+/)?(?:part-\d+\.tfrecord|_part-\d+\.tfrecord\.json)")
_UNFINISHED = re.compile(
    re.escape(TEMPORARY) + r"[0-9a-f]+-\d+-\d+-_?part-\d+\.tfrecord(?:\.json)?"
)

_Record = bytes | Mapping[str, Any]


class Written(NamedTuple):
    """A data set that was written.

    Attributes:
        records: number of records of each part, by its path or URL.
        size: number of bytes of all parts.
        kept: number of parts that were complete before, from an interrupted call.
    """

    records: dict[str, int]
    size: int
    kept: int


def write(
    records: Iterable[_Record | tuple[str, _Record]],
    target: str,
    *,
    part_bytes: int = PART_BYTES,
) -> Written:
    """Write records to TFRecord files ``part-00000.tfrecord`` and so on, each with its index.

    A part is visible only once it is complete. After a kill, the same call with the same records
    resumes: parts that are complete are not written again. Up to eight parts are held in memory;
    with many classes, parts are smaller so that this suffices.

    Args:
        records: each is `bytes`, or a mapping that is stored as tf.train.Example (see
            `encode_example`); or each is a pair of the name of its class and one of these, and each
            class gets a folder of its own.
        target: a new folder, or ``s3://bucket/prefix``.
        part_bytes: maximum size of a part, unless a single record is larger.

    Raises:
        ConfigError: there are no records, one cannot be stored, or the target has other data.
        MissingDependency: the target is on S3, and the extra "s3" is not installed.
        StoreError: the storage refused.
    """
    if part_bytes < 1:
        raise ConfigError(f"part_bytes = {part_bytes}: must be at least 1")
    storage = open_storage(target)
    with _swept(storage), ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="write") as pool:
        writing = _Writing(storage, pool, part_bytes)
        for number, record in enumerate(records):
            try:
                kind, stored = _prepared(record)
            except ConfigError as error:
                raise ConfigError(f"record {number}: {error}") from error
            writing.add(kind, stored)
        return writing.end()


@contextmanager
def _swept(storage: Storage) -> Iterator[None]:
    """Remove unfinished files that a killed write left in a local target.

    A lock on the folder tells that no other process is writing them.
    """
    if not isinstance(storage, LocalStorage):
        yield
        return
    folder = storage.location
    try:
        make_folder(folder, "")
        descriptor = open_folder(folder, "")
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from error
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for place, _, names in os.walk(folder):
                for name in filter(_UNFINISHED.fullmatch, names):
                    os.unlink(os.path.join(place, name))
        yield
    finally:
        os.close(descriptor)


def _prepared(record: Any) -> tuple[str | None, bytes]:
    """Return the class of a record, None if it has none, and the record as it is stored."""
    kind, value = record if isinstance(record, tuple) and len(record) == 2 else (None, record)
    if kind is not None and not (isinstance(kind, str) and _CLASS.fullmatch(kind)):
        raise ConfigError(
            f"the class {kind!r} cannot be the name of a folder; it must be text that is not empty,"
            " does not begin with . or _, and has no / * ? [ ] or control characters"
        )
    content = encode_example(value) if isinstance(value, Mapping) else value
    if not isinstance(content, bytes):
        raise ConfigError(
            f"a value of the type {type(value).__name__} is neither bytes nor a mapping, nor a "
            "pair of a class and one of these"
        )
    return kind, framed(content)


class _Part:
    """A part that is being filled."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.size = 0
        self._records: list[bytes] = []
        self._marks = Marks([0], [0])

    def add(self, record: bytes) -> None:
        """Add a record as it is stored."""
        self._records.append(record)
        self.size += len(record)
        if self.size - self._marks.offsets[-1] >= BETWEEN_MARKS:
            self._mark()

    def _mark(self) -> None:
        self._marks.offsets.append(self.size)
        self._marks.numbers.append(len(self._records))

    def put(self, storage: Storage) -> tuple[str, int, int, bool]:
        """Store the part and its index, unless both are there.

        Returns:
            Key, number of records, size, and whether they were there.

        Raises:
            StoreError: the storage refused.
        """
        if self.size > self._marks.offsets[-1]:
            self._mark()
        content = b"".join(self._records)
        described = {"size": self.size, "crc32c": fastcrc.crc32.iscsi(content)}
        index = json.dumps({**described, **self._marks._asdict()}).encode()
        name = index_name(self.key)
        kept = get_or_none(storage, name) == index and storage.exists(self.key)
        if not kept:
            # Without its index, it was put just before a kill, or by somebody else.
            if get_or_none(storage, self.key) not in (None, content):
                raise ConfigError(
                    f"{storage.location}/{self.key} has other records; write to a new folder or "
                    "prefix"
                )
            storage.put(self.key, [content])
            storage.put(name, [index])
        return self.key, len(self._records), self.size, kept


class _Writing:
    """A data set that is being written.

    Args:
        part_bytes: maximum size of a part.

    Raises:
        ConfigError: the target has other files.
        StoreError: the storage refused.
    """

    def __init__(self, storage: Storage, pool: ThreadPoolExecutor, part_bytes: int) -> None:
        self._storage = storage
        self._pool = pool
        self._part_bytes = part_bytes
        self._open: dict[str | None, _Part] = {}
        self._counts: dict[str | None, int] = {}
        self._held = 0
        self._putting: deque[Future[tuple[str, int, int, bool]]] = deque()
        self._written: dict[str, int] = {}
        self._size = self._kept = 0
        _refuse_strangers(storage, [key for key in storage.list("") if not _OURS.fullmatch(key)])

    def add(self, kind: str | None, stored: bytes) -> None:
        """Add a record.

        Raises:
            ConfigError: only some records have a class, or another data set is there.
            StoreError: the storage refused.
        """
        part = self._open.get(kind)
        if part is not None and part.size + len(stored) > self._part_bytes:
            self._cut(kind)
            part = None
        if part is None:
            part = self._open[kind] = self._next(kind)
        part.add(stored)
        self._held += len(stored)
        if self._held > _MOST_OPEN * self._part_bytes and len(self._open) > 1:
            self._cut(max(self._open, key=lambda one: self._open[one].size))

    def end(self) -> Written:
        """Store what is left.

        Raises:
            StoreError: the storage refused.
        """
        for kind in list(self._open):
            self._cut(kind)
        while self._putting:
            self._note()
        if not self._written:
            raise ConfigError("there are no records to write")
        expected = {*self._written, *map(index_name, self._written)}
        _refuse_strangers(self._storage, sorted({*self._storage.list("")} - expected))
        location = self._storage.location
        return Written(
            {f"{location}/{key}": count for key, count in self._written.items()},
            self._size,
            self._kept,
        )

    def _next(self, kind: str | None) -> _Part:
        """Begin the next part of a class."""
        count = self._counts.get(kind, 0)
        if self._counts and (kind is None) != (None in self._counts):
            raise ConfigError("some records have a class, and others have none")
        self._counts[kind] = count + 1
        name = f"part-{count:05d}.tfrecord"
        return _Part(name if kind is None else f"{kind}/{name}")

    def _cut(self, kind: str | None) -> None:
        """Store the open part of a class, in another thread."""
        if len(self._putting) > _CONCURRENT:
            self._note()
        part = self._open.pop(kind)
        self._held -= part.size
        self._putting.append(self._pool.submit(part.put, self._storage))

    def _note(self) -> None:
        """Wait for the next part that is being stored."""
        key, records, size, kept = self._putting.popleft().result()
        self._written[key] = records
        self._size += size
        self._kept += kept


def _refuse_strangers(storage: Storage, keys: Sequence[str]) -> None:
    """Refuse a target with other files, which readers would take for data."""
    if keys:
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        raise ConfigError(
            f"{storage.location}: {keys[0]}{more} is not of this data set; write to a new folder "
            "or prefix"
        )
