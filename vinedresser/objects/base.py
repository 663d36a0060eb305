"""The interface of storages; `vinedresser.testing` contains its conformance suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from vinedresser.errors import KeyMissing, StoreError

__all__ = ["TEMPORARY", "Buffer", "Span", "Storage", "check_key", "get_chunks", "get_or_none"]

# Prefix of the names of objects being written, which readers ignore.
TEMPORARY = ".tmp-"

# Bytes that are read at a time.
_CHUNK = 8 << 20

# Contiguous buffers that the operating system can write without a copy.
Buffer = bytes | bytearray | memoryview


class Span(NamedTuple):
    """A range of bytes of an object.

    Attributes:
        start: offset of the first byte.
        length: number of bytes.
    """

    key: str
    start: int
    length: int


class Storage(Protocol):
    """Named objects with atomic puts.

    Readers see an object completely or not at all, even if its writer is killed.
    """

    @property
    def location(self) -> str:
        """The directory or URL, as given by the user."""

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        """Store the concatenation of ``parts`` under ``key``, atomically.

        Args:
            key: relative name; missing parents are created.
            parts: contiguous byte buffers, written in order without being joined; iterated once.
            exclusive: do not replace an existing object.

        Raises:
            KeyTaken: ``exclusive`` and the object exists.
            StoreFull: no space left; nothing is stored under the key.
            StoreError: the storage refused for another reason.
        """

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the content of an object or a range of it.

        Args:
            start: offset of the first byte.
            length: number of bytes, fewer if the object ends earlier; None: up to the end.

        Raises:
            KeyMissing: no such object.
            StoreError: the storage refused for another reason.
            MemoryError: the content does not fit into memory.
        """

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the contents of objects in the order of their keys, None for each missing one.

        Remote storages send the requests concurrently.

        Raises:
            StoreError: the storage refused.
        """

    def get_spans(self, spans: Iterable[Span]) -> Iterator[bytes | None]:
        """Yield the content of each span (see `get`), in order; None for each missing object.

        Remote storages read ahead, up to 16 spans and 64 MiB (or a single larger span), so spans
        are drawn earlier than their contents are yielded.

        Raises:
            StoreError: the storage refused a span, raised in its turn; the message has its key.
        """

    def exists(self, key: str) -> bool:
        """Return whether an object exists.

        Raises:
            StoreError: the storage refused.
        """

    def folders(self, prefix: str = "") -> list[str]:
        """Return the folders after a prefix, sorted: the rest of the keys up to the next slash.

        For the keys "a/x/1", "a/x/2" and "a/y" and the prefix "a/" that is "x".

        Raises:
            StoreError: the storage refused.
        """

    def list(self, prefix: str, after: str = "") -> list[str]:
        """Return the keys that start with ``prefix`` and sort after ``after``, sorted.

        Objects being written are not included.

        Raises:
            StoreError: the storage refused.
        """

    def delete(self, key: str) -> None:
        """Remove an object if it exists.

        Raises:
            StoreError: the storage refused.
        """


def check_key(key: str) -> None:
    """Check that a key is a relative name inside its storage.

    Raises:
        StoreError: the key is invalid.
    """
    parts = key.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in key:
        raise StoreError(f"{key!r}: a key must be a relative name without '.', '..' or '//'")
    if parts[-1].startswith(TEMPORARY):
        raise StoreError(f"{key!r}: a key must not begin with {TEMPORARY}")


def get_chunks(storage: Storage, key: str) -> Iterator[bytes]:
    """Yield the content of an object, at most 8 MiB at a time.

    Raises:
        KeyMissing: no such object.
        StoreError: the storage refused for another reason.
    """
    start = 0
    while chunk := storage.get(key, start, _CHUNK):
        yield chunk
        start += len(chunk)
        if len(chunk) < _CHUNK:
            return


def get_or_none(
    storage: Storage, key: str, start: int = 0, length: int | None = None
) -> bytes | None:
    """Return the content of an object or a range of it (see `Storage.get`); None if it is missing.

    Raises:
        StoreError: the storage refused.
    """
    try:
        return storage.get(key, start, length)
    except KeyMissing:
        return None
