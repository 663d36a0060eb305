"""Files that are one record each, such as images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vinedresser.data.formats.base import Chunk, Defect, Entry, Marks, Records
from vinedresser.data.sources.base import DataObject

__all__ = ["WholeFiles"]


class WholeFiles:
    """See `Format`; the value is the content, `bytes`, which nothing checks."""

    def marks(self, found: DataObject) -> Marks:
        """See `Format.marks`; reads nothing."""
        return Marks([0, found.size], [0, 1])

    def load(self, found: DataObject, chunk: Chunk) -> bytes:
        """See `Format.load`."""
        return found.read(chunk.start, chunk.stop)

    def records(self, loaded: bytes, chunk: Chunk) -> Records:
        """See `Format.records`."""
        begin, end = np.array([[0], [len(loaded)]])
        return Records(loaded, begin, end, begin + chunk.start, [])

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Format.values`."""
        return [content[begin:end] for content, begin, end in entries], []
