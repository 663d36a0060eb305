"""Reading batches: chunks are loaded ahead, and divided into records when their turn comes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate, chain, tee
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.formats.base import Chunk, Entry, Format, Records
from vinedresser.data.index import Index
from vinedresser.data.order import Epoch, Part, Window
from vinedresser.data.records import Batch, Origins
from vinedresser.data.statistics import Statistics
from vinedresser.errors import DamagedData
from vinedresser.objects.read_ahead import read_ahead

__all__ = ["Reader", "Rows"]


class Rows(NamedTuple):
    """The records of a window in the order of the epoch.

    Attributes:
        contents: what the values are made of, by part of the window; see `Records`.
        places: for each record its part, where it begins and ends in the content, its byte offset
            and its number, int64, (5, records).
        damaged: what is wrong with records that cannot be found, by position.
    """

    window: Window
    contents: list[Any]
    places: NDArray[np.int64]
    damaged: dict[int, str]

    def entries(self, begin: int, end: int) -> Iterator[Entry]:
        """Yield records, from a position to another."""
        parts, begins, ends = self.places[:3, begin:end].tolist()
        return zip(map(self.contents.__getitem__, parts), begins, ends, strict=True)


class Reader:
    """Reads records of a data set.

    Args:
        connections: maximum number of chunks that are loaded at a time.
        statistics: what the work is added to.
        kept: positions of objects that are read and parsed only once, and remain in memory.
    """

    def __init__(
        self,
        index: Index,
        opened: Format,
        *,
        connections: int,
        statistics: Statistics,
        kept: Container[int] = (),
    ) -> None:
        self._index = index
        self._format = opened
        self._connections = connections
        self._statistics = statistics
        self._keep = kept
        self._kept: dict[Chunk, Records] = {}
        self._uris = [found.uri for found in index.objects]

    def batches(self, epoch: Epoch, numbers: Sequence[int]) -> Iterator[Batch]:
        """Yield batches of an epoch with their records' plain values.

        Args:
            epoch: the order.
            numbers: numbers of the batches, each below `Epoch.batches`.

        Raises:
            StoreError: a chunk cannot be read.
        """
        upcoming = self.rows(_windows(epoch, numbers))
        held: dict[int, Rows] = {}
        for number in numbers:
            pieces = []
            for place in epoch.places(number):
                rows = held.pop(place.window.lane, None)
                if rows is None or rows.window is not place.window:
                    # The window before is freed, unless this batch has records of both.
                    rows = None
                    rows = next(upcoming)
                held[place.window.lane] = rows
                pieces.append((rows, place.begin, place.end))
            yield self.batch(number, pieces)

    def rows(self, windows: Iterable[Window], **ahead: Any) -> Iterator[Rows]:
        """Yield the records of windows, whose chunks are loaded ahead.

        Args:
            ahead: options of `read_ahead`.

        Raises:
            StoreError: a chunk cannot be read.
        """
        upcoming, windows = tee(windows)
        loaded = read_ahead(
            (part.chunk for window in upcoming for part in window.parts),
            self._load,
            size=lambda chunk: chunk.stop - chunk.start,
            # An epoch is read to its end: the first answers would cost several round trips.
            **({"max_concurrent": self._connections, "ramp": False} | ahead),
        )
        for window in windows:
            yield self._rows(window, loaded)

    def _rows(self, window: Window, loaded: Iterator[Any]) -> Rows:
        """Return the records of a window, whose chunks are the next ones of ``loaded``."""
        parts = [self._records(part, loaded) for part in window.parts]
        contents = [part.content for part in parts]
        places = np.concatenate(
            [
                np.stack(
                    [
                        np.full(part.records, number),
                        records.begins,
                        records.ends,
                        records.offsets,
                        _numbers(part),
                    ]
                )
                for number, (part, records) in enumerate(zip(window.parts, parts, strict=True))
            ],
            axis=1,
        )
        flaws = {
            begin + flaw.record - part.chunk.first - part.skip: flaw.reason
            for begin, part, records in zip(_begins(window.parts), window.parts, parts, strict=True)
            for flaw in records.flaws
        }
        order = window.order()
        if order is None:
            return Rows(window, contents, places, flaws)
        damaged = (
            {place: flaws[one] for place, one in enumerate(order.tolist()) if one in flaws}
            if flaws
            else {}
        )
        return Rows(window, contents, places[:, order], damaged)

    def _load(self, chunk: Chunk) -> Any:
        if chunk in self._kept:
            return None
        return self._format.load(self._index.objects[chunk.object], chunk)

    def _records(self, part: Part, loaded: Iterator[Any]) -> Records:
        with self._statistics.timed("waiting"):
            content = next(loaded)
        records = self._kept.get(part.chunk)
        if records is None:
            with self._statistics.timed("parsing"):
                records = self._format.records(content, part.chunk)
            self._statistics.bytes += part.chunk.stop - part.chunk.start
            if part.chunk.object in self._keep:
                self._kept[part.chunk] = records
        end = part.skip + part.records
        first = part.chunk.first
        return Records(
            records.content,
            records.begins[part.skip : end],
            records.ends[part.skip : end],
            records.offsets[part.skip : end],
            [flaw for flaw in records.flaws if part.skip <= flaw.record - first < end],
        )

    def batch(self, number: int, pieces: list[tuple[Rows, int, int]]) -> Batch:
        """Return a batch of some records of windows.

        Args:
            pieces: records of windows, from a position to another.
        """
        reasons = {}
        if any(rows.damaged for rows, _, _ in pieces):
            flaws = (
                rows.damaged.get(at) for rows, begin, end in pieces for at in range(begin, end)
            )
            reasons = {at: flaw for at, flaw in enumerate(flaws) if flaw is not None}
        entries = [*chain.from_iterable(rows.entries(begin, end) for rows, begin, end in pieces)]
        found: Sequence[int] = range(len(entries))
        if reasons:
            found = [at for at in found if at not in reasons]
            entries = [entries[at] for at in found]
        with self._statistics.timed("parsing"):
            values, defects = self._format.values(entries)
        objects, offsets, numbers = np.concatenate([_origins(*piece) for piece in pieces], axis=1)
        if not reasons and not defects:
            return Batch(values, Origins(self._uris, objects, offsets, numbers), number, [])
        reasons |= {found[defect.place]: defect.reason for defect in defects}
        kept = [at for at in found if at not in reasons]
        return Batch(
            [value for at, value in zip(found, values, strict=True) if at not in reasons],
            Origins(self._uris, objects[kept], offsets[kept], numbers[kept]),
            number,
            [
                DamagedData(
                    self._uris[objects[at]], int(offsets[at]), int(numbers[at]), reasons[at]
                )
                for at in sorted(reasons)
            ],
        )


def _windows(epoch: Epoch, numbers: Sequence[int]) -> Iterator[Window]:
    """Yield the windows of batches in the order in which `Reader.batches` needs them."""
    held: dict[int, Window] = {}
    for number in numbers:
        for place in epoch.places(number):
            if held.get(place.window.lane) is not place.window:
                held[place.window.lane] = place.window
                yield place.window


def _origins(rows: Rows, begin: int, end: int) -> NDArray[np.int64]:
    """Return object, byte offset and number of records of a window, int64, (3, records)."""
    objects = np.array([part.chunk.object for part in rows.window.parts], np.int64)
    part, _, _, offsets, numbers = rows.places[:, begin:end]
    return np.stack([objects[part], offsets, numbers])


def _begins(parts: list[Part]) -> list[int]:
    """Return the position of the first record of each part in its window."""
    return [*accumulate((part.records for part in parts[:-1]), initial=0)]


def _numbers(part: Part) -> NDArray[np.int64]:
    first = part.chunk.first + part.skip
    return np.arange(first, first + part.records, dtype=np.int64)
