"""The interface of formats: how an object is divided into records."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.sources.base import DataObject

__all__ = ["Chunk", "Defect", "Entry", "Flaw", "Format", "Marks", "Records", "picked"]

Entry = tuple[Any, int, int]
"""A record: the content of its chunk, and where in it the record begins and ends."""


class Flaw(NamedTuple):
    """Damage inside an object.

    Attributes:
        offset: byte offset of the damaged record.
        record: its number in the object.
        reason: what is wrong.
    """

    offset: int
    record: int
    reason: str


class Defect(NamedTuple):
    """A value that cannot be made.

    Attributes:
        place: position of the record among those that were asked for.
        reason: what is wrong with it.
    """

    place: int
    reason: str


class Marks(NamedTuple):
    """The places of an object at which reading can begin.

    Attributes:
        offsets: byte offset of each mark, and the end of the last record.
        numbers: number of the first record behind each mark, and the number of records.
        flaw: damage behind which nothing can be read, if there is any.
    """

    offsets: MutableSequence[int]
    numbers: MutableSequence[int]
    flaw: Flaw | None = None


class Chunk(NamedTuple):
    """Neighbouring records of an object that are read together.

    Attributes:
        object: position of the object in the data set.
        first: number of the first record.
        records: number of records.
        start: byte offset of the first record.
        stop: byte offset behind the last one.
    """

    object: int
    first: int
    records: int
    start: int
    stop: int


class Records(NamedTuple):
    """The records of a chunk, which is divided, but not yet verified.

    Attributes:
        content: what the values are made of, such as the bytes of the chunk.
        begins: where each record begins in it, in whatever unit the format has, int64, (records,).
        ends: where each record ends, int64, (records,).
        offsets: their byte offsets in the object, int64, (records,).
        flaws: those that cannot be found.
    """

    content: Any
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    flaws: list[Flaw]

    def entries(self) -> list[Entry]:
        """Return all records; those that cannot be found are empty."""
        places = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return [(self.content, begin, end) for begin, end in places]


class Format(Protocol):
    """How objects of a kind are divided into records."""

    def marks(self, found: DataObject) -> Marks:
        """Return the marks of an object.

        Raises:
            DamagedData: the object is of another kind.
            StoreError: it cannot be read.
        """

    def load(self, found: DataObject, chunk: Chunk) -> Any:
        """Return the bytes of a chunk, read in any thread.

        Raises:
            StoreError: they cannot be read.
        """

    def records(self, loaded: Any, chunk: Chunk) -> Records:
        """Divide a loaded chunk into its records.

        The work of the processor: it is not done in the threads that read. If the chunk cannot be
        divided, all from the first damaged one on are flaws.
        """

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """Return the values of records, and what is wrong with which.

        Made for each batch, not for each chunk: so the work is even, and memory is used again.

        Args:
            entries: the records, of any chunks, in any order.
        """


def picked(entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
    """See `Format.values`, where a content is the list of the values."""
    return [content[begin] for content, begin, _ in entries], []
