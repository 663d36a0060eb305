"""The storage of a run that could not be created: it keeps nothing."""

# ruff: noqa: ARG002 (the parameters are those of Storage)

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vinedresser.errors import KeyMissing
from vinedresser.objects.base import Buffer, Span


class NoStorage:
    """Forgets what is put into it, so that a training goes on although its disk failed.

    Args:
        location: the directory that could not be written.
    """

    def __init__(self, location: str) -> None:
        self.location = location

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        """Draw the parts, as their producer expects, and forget them."""
        for _ in parts:
            pass

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Raise `KeyMissing`."""
        raise KeyMissing(f"{self.location}/{key}: no such object")

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return None for each key."""
        return [None] * len(keys)

    def get_spans(self, spans: Iterable[Span]) -> Iterator[bytes | None]:
        """Yield None for each span."""
        return (None for _ in spans)

    def exists(self, key: str) -> bool:
        """Return False."""
        return False

    def folders(self, prefix: str = "") -> list[str]:
        """Return an empty list."""
        return []

    def list(self, prefix: str, after: str = "") -> list[str]:
        """Return an empty list."""
        return []

    def delete(self, key: str) -> None:
        """Do nothing."""
