"""The interface of formats: how an object is divided into records."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.sources.base import DataObject

__all__ = ["Chunk", "Flaw", "Format", "Marks", "Records"]


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


class Marks(NamedTuple):
    """The places of an object at which reading can begin.

    Attributes:
        offsets: byte offset of each mark, and the end of the last record.
        numbers: number of the first record behind each mark, and the number of records.
        flaw: damage behind which nothing can be read, if there is any.
    """

    offsets: list[int]
    numbers: list[int]
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
    """The records of a chunk.

    Attributes:
        values: their values; those of damaged records mean nothing.
        offsets: their byte offsets, int64, (records,).
        flaws: the damaged ones.
    """

    values: list[Any]
    offsets: NDArray[np.int64]
    flaws: list[Flaw]


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
        """Return the records of a loaded chunk.

        The work of the processor: it is not done in the threads that read. If the chunk cannot be
        divided into its records, all from the first damaged one on are flaws.
        """
