"""Files that are one record each, such as images, alone or with their attributes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from vinedresser.data.formats.base import Chunk, Defect, Entry, Marks, Records, picked
from vinedresser.data.sources.augmented import SOURCE, DescribedObject
from vinedresser.data.sources.base import DataObject

__all__ = ["DescribedFiles", "WholeFiles"]


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


class DescribedFiles:
    """See `Format`; the value is the attributes of a file, with its content, `bytes`, as source."""

    def marks(self, found: DataObject) -> Marks:
        """See `Format.marks`; reads nothing."""
        return Marks([0, found.size], [0, 1])

    def load(self, found: DataObject, chunk: Chunk) -> dict[str, Any]:
        """See `Format.load`."""
        attributes = json.loads(cast(DescribedObject, found).attributes)
        return {**attributes, SOURCE: found.read(chunk.start, chunk.stop)}

    def records(self, loaded: dict[str, Any], chunk: Chunk) -> Records:
        """See `Format.records`."""
        place = np.zeros(1, np.int64)
        return Records([loaded], place, place + 1, place + chunk.start, [])

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Format.values`."""
        return picked(entries)
