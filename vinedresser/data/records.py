"""Records of training data, in batches, each with its origin."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import DamagedData

__all__ = ["Batch", "Origin", "Origins"]

# Objects of a batch that are named.
_MOST_OBJECTS = 3


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

    @property
    def command(self) -> str:
        """The command that shows the record."""
        return f"vinedresser data show {shlex.quote(f'{self.uri}:{self.offset}')}"


@dataclass(init=False, eq=False)
class Origins:
    """Origins of the records of a batch, by position: columns, cheap to make, send and keep.

    Not a `collections.abc.Sequence`, the entries of which torch would convert one by one.

    Args:
        uris: the objects of the data set.
        objects: for each record the position of its object in ``uris``, int64, (records,).
        offsets: byte offsets, int64, (records,).
        records: record numbers, int64, (records,).
    """

    uris: list[str]
    objects: NDArray[np.int64]
    offsets: NDArray[np.int64]
    records: NDArray[np.int64]

    def __init__(
        self,
        uris: Sequence[str],
        objects: NDArray[np.int64],
        offsets: NDArray[np.int64],
        records: NDArray[np.int64],
    ) -> None:
        if len(objects) and (objects == objects[0]).all():
            # Sorting them takes longer than all else here.
            present, self.objects = objects[:1], np.zeros_like(objects)
        else:
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

    def __str__(self) -> str:
        objects = [
            f"{one.size} of {uri} (records {one.min()} to {one.max()})"
            for place, uri in enumerate(self.uris[:_MOST_OBJECTS])
            if (one := self.records[self.objects == place]).size
        ]
        more = len(self.uris) - len(objects)
        others = f" and {more} more object{'s' * (more > 1)}" if more else ""
        return f"{len(self)} records: {', '.join(objects)}{others}"

    def packed(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the origins as arrays, which `unpacked` reads.

        Returns:
            Position of its object, byte offset and number of each record, (records, 3), and the
            URIs in UTF-8, each with a zero byte at its end, (bytes,).
        """
        text = "".join(f"{uri}\0" for uri in self.uris).encode(errors="surrogateescape")
        columns = np.stack([self.objects, self.offsets, self.records], axis=1)
        return columns, np.frombuffer(text, np.uint8)

    @classmethod
    def unpacked(cls, columns: NDArray[np.int64], uris: NDArray[np.uint8]) -> Origins:
        """Return origins of the arrays that `packed` returned.

        Raises:
            ValueError: they are not such arrays.
        """
        names = uris.tobytes().decode(errors="surrogateescape").split("\0")[:-1]
        right = columns.ndim == 2 and columns.shape[1] == 3 and columns.dtype == np.int64
        if not right or (
            len(columns) and not 0 <= columns[:, 0].min() <= columns[:, 0].max() < len(names)
        ):
            raise ValueError("not the origins of records")
        return cls(names, *columns.T)


class Batch(NamedTuple):
    """Some records.

    Attributes:
        values: their values; a list, or what ``collate`` made of it.
        origins: their origins, in the same order.
        number: number of the batch in its epoch, from 0, over all ranks.
        damaged: errors of records that are left out of the batch.
        seconds: waiting, parsing and decoding of the worker that made it, in seconds; () if this
            process made it.
    """

    values: Any
    origins: Origins
    number: int
    damaged: list[DamagedData]
    seconds: tuple[float, ...] = ()
