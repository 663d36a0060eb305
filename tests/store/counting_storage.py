"""A storage that counts the requests of readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vinedresser.objects import LocalStorage

__all__ = ["CountingStorage"]


class CountingStorage(LocalStorage):
    """A local storage that counts objects by the first part of their key, and other questions.

    Attributes:
        asked: how often each was asked for.
        journeys: how often several objects were asked for at once.
        octets: bytes of the contents.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: Counter[str] = Counter()
        self.journeys = 0
        self.octets = 0

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.asked[key.partition("/")[0]] += 1
        content = super().get(key, start, length)
        self.octets += len(content)
        return content

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        self.journeys += 1
        return super().get_many(keys)

    def exists(self, key: str) -> bool:
        self.asked["exists"] += 1
        return super().exists(key)

    def list(self, prefix: str, after: str = "") -> list[str]:
        self.asked["list"] += 1
        return super().list(prefix, after)
