"""The inputs of the last requests, in memory, for an alert that asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from vinedresser.columns.rows import Parts, size_of, taken
from vinedresser.serving.recording.items import Batch

__all__ = ["InputRing", "KeptInputs"]


class KeptInputs(NamedTuple):
    """Inputs of some requests.

    Attributes:
        times: arrival of each, seconds since the epoch.
        inputs: inputs by name of the part.
    """

    ids: list[bytes]
    times: list[float]
    inputs: Parts

    def some(self, rows: list[int]) -> KeptInputs:
        """Return some of the requests."""
        return KeptInputs(
            [self.ids[row] for row in rows],
            [self.times[row] for row in rows],
            taken(self.inputs, rows),
        )


class InputRing:
    """Keeps the inputs of the last requests, bounded in bytes.

    Args:
        most_bytes: maximum size; the oldest are dropped.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: deque[tuple[KeptInputs, int]] = deque()
        self._bytes = 0

    def add(self, batch: Batch) -> KeptInputs:
        """Keep the inputs of a batch, and return them."""
        kept = KeptInputs(batch.ids, batch.times.tolist(), batch.inputs)
        size = size_of(batch.inputs) + 128 * len(batch.ids)
        self._kept.append((kept, size))
        self._bytes += size
        while self._bytes > self._most_bytes and self._kept:
            self._bytes -= self._kept.popleft()[1]
        return kept

    def find(self, ids: frozenset[bytes]) -> Iterator[KeptInputs]:
        """Yield the kept inputs of the requests with these ids, the oldest first."""
        for kept, _ in [*self._kept]:
            rows = [row for row, one in enumerate(kept.ids) if one in ids]
            if rows:
                yield kept if len(rows) == len(kept.ids) else kept.some(rows)
