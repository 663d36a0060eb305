"""The interface of objects that training data is read from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from vinedresser.objects.read_ahead import read_ahead

__all__ = ["DataObject", "WrappedObject", "blocks_of"]

# S3 needs 30 ms to the first byte and then sends about 40 MB/s per connection.
_BLOCK = 4 << 20


class DataObject(Protocol):
    """A file or an object, as it was when it was found; a plain value that can be sent to workers.

    Attributes:
        uri: its path or URL.
        size: its size in bytes.
        version: changes whenever the content does.
    """

    @property
    def uri(self) -> str: ...  # noqa: D102 (see the class)

    @property
    def size(self) -> int: ...  # noqa: D102

    @property
    def version(self) -> str: ...  # noqa: D102

    def __hash__(self) -> int: ...

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``, all of them.

        Raises:
            SourceChanged: the object is not the one that was found.
            StoreError: it cannot be read.
        """


@dataclass(frozen=True)
class WrappedObject:
    """An object of which a subclass changes something; see `DataObject`."""

    inner: DataObject

    @property
    def uri(self) -> str:
        """See `DataObject`."""
        return self.inner.uri

    @property
    def size(self) -> int:
        """See `DataObject`."""
        return self.inner.size

    @property
    def version(self) -> str:
        """See `DataObject`."""
        return self.inner.version

    def read(self, start: int, stop: int) -> bytes:
        """See `DataObject.read`."""
        return self.inner.read(start, stop)


def blocks_of(found: DataObject, *, max_concurrent: int) -> Iterator[bytes]:
    """Yield the content of an object in order, in blocks of 4 MiB that are read concurrently.

    Raises:
        StoreError: see `DataObject.read`.
    """
    if found.size <= _BLOCK:
        # No thread for each of many small objects.
        return iter([found.read(0, found.size)] if found.size else [])
    spans = [(start, min(start + _BLOCK, found.size)) for start in range(0, found.size, _BLOCK)]
    return read_ahead(
        spans,
        lambda span: found.read(*span),
        size=lambda span: span[1] - span[0],
        max_concurrent=max_concurrent,
    )
