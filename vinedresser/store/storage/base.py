"""The interface that every storage implements; `vinedresser.testing` has its conformance suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from vinedresser.errors import StoreError

__all__ = ["TEMPORARY", "Buffer", "Span", "Storage", "check_key"]

# Names that begin so are objects being written, and none to anybody else.
TEMPORARY = ".tmp-"

# What a put accepts: anything contiguous that the operating system can write as it lies.
Buffer = bytes | bytearray | memoryview


class Span(NamedTuple):
    """Bytes of an object.

    Attributes:
        key: of the object.
        start: where they begin.
        length: how many there are.
    """

    key: str
    start: int
    length: int


class Storage(Protocol):
    """Named immutable or replaceable objects with atomic puts.

    A reader sees an object whole or not at all, whenever the writer is killed.
    """

    @property
    def location(self) -> str:
        """Where it is, as a user would write it: a directory path or a URL."""

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        """Store the concatenation of ``parts`` under ``key``, atomically.

        Args:
            key: relative name; missing parents are made.
            parts: contiguous byte buffers, written in order without being joined; drawn once.
            exclusive: refuse to replace an existing object.

        Raises:
            KeyTaken: ``exclusive`` and the key is in use.
            StoreFull: no space left; nothing is stored under the key.
            StoreError: the storage refused otherwise.
        """

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return bytes of an object, from ``start``, ``length`` of them or all that follow.

        Fewer bytes come back where the object ends earlier.

        Raises:
            KeyMissing: there is no such object.
            StoreError: the storage refused otherwise.
        """

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return whole objects in the order of their keys, None for each that is not there.

        Where each look-up takes a journey, they travel together.

        Raises:
            StoreError: the storage refused.
        """

    def get_spans(self, spans: Iterable[Span]) -> Iterator[bytes | None]:
        """Yield what `get` returns of each span, in their order; None where there is no object.

        Where each takes a journey, some travel ahead of what was yielded, as many as 16 and as much
        as 64 MiB, or one that is larger; so spans are drawn earlier than they are yielded.

        Raises:
            StoreError: the storage refused one, in its turn; the message has its key.
        """

    def exists(self, key: str) -> bool:
        """Say whether an object is stored under ``key``."""

    def folders(self, prefix: str = "") -> list[str]:
        """Return what the keys that start with ``prefix`` have up to the next slash, sorted.

        Of "a/x/1", "a/x/2" and "a/y" that is, for the prefix "a/", "x".
        """

    def list(self, prefix: str, after: str = "") -> list[str]:
        """Return the keys that start with ``prefix`` and sort after ``after``, sorted.

        Objects being written are not listed.
        """

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens where there is none."""


def check_key(key: str) -> None:
    """Check that a key is a relative name that stays inside its storage.

    Raises:
        StoreError: it is not; the message has it.
    """
    parts = key.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in key:
        raise StoreError(f"{key!r}: a key is a relative name without '.', '..' or '//'")
    if parts[-1].startswith(TEMPORARY):
        raise StoreError(f"{key!r}: names that begin with {TEMPORARY} are not for keys")
