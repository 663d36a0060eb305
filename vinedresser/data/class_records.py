"""The records of one class of a mixture: an endless sequence, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, tee
from typing import Any

from vinedresser.data.index import Index
from vinedresser.data.order import Epoch, Settings, Window
from vinedresser.data.reading import Reader, Rows

__all__ = ["ClassRecords", "LaneRecords"]

# The lanes of a class are in the same epoch, or in neighbouring ones.
_EPOCHS = 3


class ClassRecords:
    """The order of the records of a class, lane by lane.

    Args:
        index: index of the mixture.
        settings: the settings, for batches of one record.
        objects: positions in the index of the objects of the class.

    Attributes:
        records: number of records.
    """

    def __init__(self, index: Index, settings: Settings, objects: Sequence[int]) -> None:
        self.objects = objects
        self.records = sum(index.marks[one].numbers[-1] for one in objects)
        self._index = index
        self._settings = settings
        self._epochs: dict[int, Epoch] = {}

    def windows(self, lane: int, position: int) -> Iterator[tuple[int, Window]]:
        """Yield the windows of a lane, each behind the position of its first record, without end.

        Args:
            lane: number of the lane.
            position: position of a record in the first window, in the lane and over all epochs.
        """
        size = len(range(lane, self.records, self._settings.lanes))
        first, rest = divmod(position, size)
        for number in count(first):
            for begin, window in self._epoch(number).windows(lane, rest):
                yield number * size + begin, window
            rest = 0

    def _epoch(self, number: int) -> Epoch:
        if number not in self._epochs:
            while len(self._epochs) >= _EPOCHS:
                del self._epochs[next(iter(self._epochs))]
            self._epochs[number] = Epoch(self._index, self._settings, number, self.objects)
        return self._epochs[number]


class LaneRecords:
    """Reads the records of a class in a lane.

    Args:
        reader: reads windows.
        windows: see `ClassRecords.windows`.
        ahead: options of `read_ahead`.
    """

    def __init__(self, reader: Reader, windows: Iterator[tuple[int, Window]], **ahead: Any) -> None:
        begins, upcoming = tee(windows)
        self._begins = (begin for begin, _ in begins)
        self._upcoming = reader.rows((window for _, window in upcoming), **ahead)
        self._begin = 0
        self._rows: Rows | None = None

    def take(self, first: int, records: int) -> Iterator[tuple[Rows, int, int]]:
        """Yield where records are: a window, the first one in it, and the one behind the last.

        Args:
            first: position of the first record, not before that of an earlier call.
            records: number of records.

        Raises:
            StoreError: a chunk cannot be read.
        """
        stop = first + records
        while first < stop:
            while self._rows is None or first >= self._begin + self._rows.window.records:
                # The window before is freed, unless this batch has records of both.
                self._rows = None
                self._begin, self._rows = next(self._begins), next(self._upcoming)
            end = min(stop, self._begin + self._rows.window.records)
            yield self._rows, first - self._begin, end - self._begin
            first = end
