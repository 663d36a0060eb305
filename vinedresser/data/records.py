"""Records of training data, in batches, each with its origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import DamagedData

__all__ = ["Batch", "Origin", "Origins"]


class Origin(NamedTuple):
    """Where a record comes from.

    Attributes:
        uri: path or URL of the object.
        offset: byte offset of the record in the object; in the decompressed data if the object is
            compressed.
        record: number of the record in the object, from 0.
    """

    uri: str
    offset: int
    record: int

    def __str__(self) -> str:
        return f"{self.uri}: record {self.record} at byte {self.offset}"


class Origins:
    """Origins of the records of a batch, by position: columns, cheap to make, send and keep.

    Not a `collections.abc.Sequence`, the entries of which torch would convert one by one.

    Args:
        uris: the objects of the data set.
        objects: for each record the position of its object in ``uris``, int64, (records,).
        offsets: byte offsets, int64, (records,).
        records: record numbers, int64, (records,).
    """

    def __init__(
        self,
        uris: Sequence[str],
        objects: NDArray[np.int64],
        offsets: NDArray[np.int64],
        records: NDArray[np.int64],
    ) -> None:
        present, self.objects = np.unique(objects, return_inverse=True)
        self.uris = [uris[one] for one in present.tolist()]
        self.offsets = offsets
        self.records = records

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> Origin:
        uri = self.uris[self.objects[index]]
        return Origin(uri, int(self.offsets[index]), int(self.records[index]))

    def __iter__(self) -> Iterator[Origin]:
        return (
            Origin(self.uris[place], offset, record)
            for place, offset, record in zip(
                self.objects.tolist(), self.offsets.tolist(), self.records.tolist(), strict=True
            )
        )


class Batch(NamedTuple):
    """Some records.

    Attributes:
        values: their values; a list, or what ``collate`` made of it.
        origins: their origins, in the same order.
        number: number of the batch in its epoch, from 0, over all ranks.
        damaged: errors of records that are left out of the batch.
    """

    values: Any
    origins: Origins
    number: int
    damaged: list[DamagedData]
