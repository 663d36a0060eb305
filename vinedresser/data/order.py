"""The order of the records of an epoch, a pure function of the index and a few settings.

The chunks of all objects are permuted, and laid one behind the other. The sequence is cut into
lanes, the batches of which alternate: batch b is in lane b % lanes. Within a lane, the records of a
window of chunks are permuted. So a position in an epoch is the number of a batch, whoever reads
which batch; and who reads whole lanes reads nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.formats.base import Chunk
from vinedresser.data.index import Index

__all__ = ["Epoch", "Part", "Place", "Settings", "Window", "permutation"]


@dataclass(frozen=True)
class Settings:
    """What the order depends on, besides the data; see `vinedresser.data.Dataset`."""

    batch_size: int
    seed: int | None
    lanes: int
    window_bytes: int
    chunk_bytes: int
    drop_last: bool

    def as_json(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return asdict(self)


class Part(NamedTuple):
    """Some records of a chunk: those from ``skip`` on, ``records`` of them."""

    chunk: Chunk
    skip: int
    records: int


class Window(NamedTuple):
    """Neighbouring parts whose records are permuted.

    Attributes:
        lane: number of the lane.
        records: number of records.
        seeds: the order of the records depends on them; None: as they are.
    """

    lane: int
    parts: list[Part]
    records: int
    seeds: tuple[int, ...] | None

    def order(self) -> NDArray[np.int64] | None:
        """Return the order of the records, int64, (records,); None: as they are."""
        return None if self.seeds is None else permutation(self.seeds, self.records)


class Place(NamedTuple):
    """Records of a window, from ``begin`` to ``end`` in the order of the epoch."""

    window: Window
    begin: int
    end: int


class Epoch:
    """The order of one epoch.

    Args:
        number: number of the epoch, from 0.
        objects: positions in the index of the objects that the epoch consists of; None: all.

    Attributes:
        batches: number of batches, over all ranks.
    """

    def __init__(
        self, index: Index, settings: Settings, number: int, objects: Sequence[int] | None = None
    ) -> None:
        self._settings = settings
        self.number = number
        size, lanes = settings.batch_size, settings.lanes
        objects = range(len(index.objects)) if objects is None else objects
        records = sum(index.marks[one].numbers[-1] for one in objects)
        self.batches = records // size if settings.drop_last else -(-records // size)
        if settings.drop_last:
            records = self.batches * size
        chunks = list(_chunks(index, settings.chunk_bytes, objects))
        if settings.seed is not None:
            order = permutation((settings.seed, number), len(chunks))
            chunks = [chunks[one] for one in order]
        # The number of batches of each lane; the last batch of the epoch may be a smaller one.
        counts = [len(range(lane, self.batches, lanes)) * size for lane in range(lanes)]
        if self.batches:
            counts[(self.batches - 1) % lanes] -= self.batches * size - records
        self._lanes = [
            self._windows(lane, list(parts)) for lane, parts in enumerate(_cut(chunks, counts))
        ]
        # The position of the first record of each window in its lane.
        self._begins = [
            [0, *accumulate(window.records for window in windows)] for windows in self._lanes
        ]

    def places(self, batch: int) -> Iterator[Place]:
        """Yield where the records of a batch are, in order.

        Args:
            batch: its number, below ``batches``.
        """
        number, lane = divmod(batch, self._settings.lanes)
        begins = self._begins[lane]
        position = number * self._settings.batch_size
        end = min(position + self._settings.batch_size, begins[-1])
        while position < end:
            found = bisect_right(begins, position) - 1
            stop = min(end, begins[found + 1])
            yield Place(self._lanes[lane][found], position - begins[found], stop - begins[found])
            position = stop

    def windows(self, lane: int, position: int) -> Iterator[tuple[int, Window]]:
        """Yield the windows of a lane, from a record on, each behind the position of its first.

        Args:
            lane: number of the lane.
        """
        first = bisect_right(self._begins[lane], position) - 1
        yield from zip(self._begins[lane][first:-1], self._lanes[lane][first:], strict=True)

    def _windows(self, lane: int, parts: list[Part]) -> list[Window]:
        seed = self._settings.seed
        most = 0 if seed is None else self._settings.window_bytes // self._settings.lanes
        divided: list[list[Part]] = []
        size = 0
        for part in parts:
            bytes_more = part.chunk.stop - part.chunk.start
            if not divided or size + bytes_more > most:
                divided.append([])
                size = 0
            divided[-1].append(part)
            size += bytes_more
        return [
            Window(
                lane,
                held,
                sum(one.records for one in held),
                None if seed is None else (seed, self.number, 1 + lane, number),
            )
            for number, held in enumerate(divided)
        ]


def permutation(seeds: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """Return a permutation, int64, (count,), the same in all versions of NumPy.

    `numpy.random.Generator.permutation` is not.
    """
    keys = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(count)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def _chunks(index: Index, wanted: int, objects: Sequence[int]) -> Iterator[Chunk]:
    """Yield the chunks of objects: each object in equal parts, as far as its marks allow.

    Args:
        wanted: about how many bytes a chunk has, more if two neighbouring marks are farther apart.
        objects: positions of the objects in the index.
    """
    for number in objects:
        marks = index.marks[number]
        offsets, numbers = marks.offsets, marks.numbers
        first, size = offsets[0], offsets[-1] - offsets[0]
        parts = max(round(size / wanted), 1)
        begin = part = 0
        while part < parts:
            # The next part that reaches the next mark: there may be many more parts than marks.
            missing = offsets[min(begin + 1, len(offsets) - 1)] - first
            part = max(part + 1, -(-missing * parts // max(size, 1)))
            end = bisect_right(offsets, first + size * part // parts) - 1
            if count := numbers[end] - numbers[begin]:
                yield Chunk(number, numbers[begin], count, offsets[begin], offsets[end])
                begin = end


def _cut(chunks: list[Chunk], counts: list[int]) -> Iterator[Iterator[Part]]:
    """Yield for each lane the parts of consecutive chunks with its number of records.

    Each is to be drawn before the next one.
    """
    upcoming = iter(chunks)
    chunk = next(upcoming, None)
    skip = 0

    def take(wanted: int) -> Iterator[Part]:
        nonlocal chunk, skip
        while wanted and chunk is not None:
            count = min(wanted, chunk.records - skip)
            yield Part(chunk, skip, count)
            wanted -= count
            skip += count
            if skip == chunk.records:
                chunk, skip = next(upcoming, None), 0

    yield from map(take, counts)
