"""The index record: the small object that commits a segment and says what lies where in it.

    {"crc32c":"xxxxxxxx","record":{"format":1,"rank":0,"seq":3,"bytes":8392704,
     "modes":"ttte","steps":[30,31,32,33],"time":1763697453.25,"microseconds":[0,9012,18006,21777],
     "dropped":0,
     "columns":[{"names":["losses/loss"],"reductions":null,"rows":[0,1,2],"offset":1024,
                 "crc32c":"xxxxxxxx"}],
     "tensors":[{"dtype":"F32","names":["weights/a","weights/b"],"shapes":[[3,2],[3]],"rows":null,
                 "offset":1048,"crc32c":"xxxxxxxx..."}]}}

The checksum at the front covers the record's bytes as they lie. `rows` of a group are those of the
segment's rows at which it was captured, null for all. `offset` counts from the start of the segment
file. The checksums of tensors come tensor by tensor, row by row, eight digits each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from vinedresser.capture.store.layout import ColumnLayout, LayoutPool, TensorLayout
from vinedresser.capture.store.step_record import MODES
from vinedresser.errors import Damaged
from vinedresser.infra.run_directory import index_key, segment_key

__all__ = ["FORMAT", "ColumnGroup", "IndexRecord", "Rows", "TensorGroup"]

FORMAT = 1

_HEAD = b'{"crc32c":"'
_MIDDLE = b'","record":'
_TO_JSON = json.JSONEncoder(separators=(",", ":")).encode
# Modes are one letter a row: their first ones.
_LETTERS = np.frombuffer("".join(mode[0] for mode in MODES).encode(), np.uint8)
_CODES = np.zeros(256, np.uint8)
_CODES[_LETTERS] = np.arange(len(MODES))


class Rows(NamedTuple):
    """The records of a segment, in the order in which they were captured.

    Attributes:
        modes: uint8, [N]; positions in `MODES`.
        steps: int64, [N].
        times: float64, [N]; seconds since the epoch, to the microsecond.
    """

    modes: NDArray[np.uint8]
    steps: NDArray[np.int64]
    times: NDArray[np.float64]

    def letters(self) -> str:
        """Return the modes as one letter a row, their first."""
        return _LETTERS[self.modes].tobytes().decode()


class ColumnGroup(NamedTuple):
    """One matrix of scalars or statistics in a segment.

    Attributes:
        layout: its axes.
        rows: int64, [n]; the segment's rows at which it was captured, ascending; None for all.
        offset: where it begins, in bytes from the start of the file.
        checksum: CRC32C of its bytes.
    """

    layout: ColumnLayout
    rows: NDArray[np.int64] | None
    offset: int
    checksum: int


class TensorGroup(NamedTuple):
    """Tensors of one element type, captured at the same rows.

    Attributes:
        layout: which, and of what shapes.
        rows: int64, [n]; the segment's rows at which they were captured, ascending; None for all.
        offset: where the first begins, in bytes from the start of the file.
        checksums: uint32, [tensors, n]; CRC32C of each tensor at each row.
    """

    layout: TensorLayout
    rows: NDArray[np.int64] | None
    offset: int
    checksums: NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class IndexRecord:
    """What a committed segment holds.

    Attributes:
        rank: the process that wrote it.
        seq: its number, from 0 without a gap.
        size: bytes of the segment file.
        rows: its records.
        columns: its scalars and statistics.
        tensors: its tensors.
        dropped: records that were lost between the segment before and this one.
    """

    rank: int
    seq: int
    size: int
    rows: Rows
    columns: tuple[ColumnGroup, ...]
    tensors: tuple[TensorGroup, ...]
    dropped: int = 0

    @property
    def key(self) -> str:
        """Where the record lies."""
        return index_key(self.rank, self.seq)

    @property
    def segment(self) -> str:
        """Where the segment lies."""
        return segment_key(self.rank, self.seq)

    def encode(self) -> bytes:
        """Return the bytes to store."""
        first = float(self.rows.times[0])
        document = {
            "format": FORMAT,
            "rank": self.rank,
            "seq": self.seq,
            "bytes": self.size,
            "modes": self.rows.letters(),
            "steps": self.rows.steps.tolist(),
            "time": first,
            "microseconds": np.rint((self.rows.times - first) * 1e6).astype(np.int64).tolist(),
            "dropped": self.dropped,
            "columns": [_column_document(group) for group in self.columns],
            "tensors": [_tensor_document(group) for group in self.tensors],
        }
        record = _TO_JSON(document).encode()
        return b"".join([_HEAD, b"%08x" % crc32.iscsi(record), _MIDDLE, record, b"}"])

    @classmethod
    def decode(cls, content: bytes, pool: LayoutPool) -> IndexRecord:
        """Read what `encode` made.

        Args:
            content: the stored bytes.
            pool: gives the layouts.

        Raises:
            Damaged: the checksum does not match, or the format is not ours; the message does not
                say where the record lies.
        """
        head, middle = len(_HEAD), len(_HEAD) + 8
        record = content[middle + len(_MIDDLE) : -1]
        if content[:head] != _HEAD or content[middle : middle + len(_MIDDLE)] != _MIDDLE:
            raise Damaged("not an index record")
        if content[head:middle] != b"%08x" % crc32.iscsi(record):
            raise Damaged("its checksum does not match")
        document = json.loads(record)
        if document["format"] != FORMAT:
            raise Damaged(f"format {document['format']} is not known here, only {FORMAT}")
        rows = Rows(
            _CODES[np.frombuffer(document["modes"].encode(), np.uint8)],
            np.array(document["steps"], np.int64),
            document["time"] + np.array(document["microseconds"], np.int64) * 1e-6,
        )
        return cls(
            rank=document["rank"],
            seq=document["seq"],
            size=document["bytes"],
            rows=rows,
            columns=tuple(_column_group(group, pool) for group in document["columns"]),
            tensors=tuple(_tensor_group(group, pool) for group in document["tensors"]),
            dropped=document["dropped"],
        )


def _row_list(rows: NDArray[np.int64] | None) -> list[int] | None:
    return None if rows is None else rows.tolist()


def _row_array(rows: list[int] | None) -> NDArray[np.int64] | None:
    return None if rows is None else np.array(rows, np.int64)


def _column_document(group: ColumnGroup) -> dict[str, Any]:
    return {
        "names": group.layout.names,
        "reductions": group.layout.reductions,
        "rows": _row_list(group.rows),
        "offset": group.offset,
        "crc32c": f"{group.checksum:08x}",
    }


def _column_group(document: Mapping[str, Any], pool: LayoutPool) -> ColumnGroup:
    reductions = document["reductions"]
    layout = pool.columns(
        tuple(document["names"]), None if reductions is None else tuple(reductions)
    )
    rows = _row_array(document["rows"])
    return ColumnGroup(layout, rows, document["offset"], int(document["crc32c"], 16))


def _tensor_document(group: TensorGroup) -> dict[str, Any]:
    return {
        "dtype": group.layout.dtype,
        "names": group.layout.names,
        "shapes": group.layout.shapes,
        "rows": _row_list(group.rows),
        "offset": group.offset,
        "crc32c": group.checksums.astype(">u4").tobytes().hex(),
    }


def _tensor_group(document: Mapping[str, Any], pool: LayoutPool) -> TensorGroup:
    names = tuple(document["names"])
    layout = pool.tensors(document["dtype"], names, tuple(map(tuple, document["shapes"])))
    checksums = np.frombuffer(bytes.fromhex(document["crc32c"]), ">u4").astype(np.uint32)
    rows = _row_array(document["rows"])
    return TensorGroup(layout, rows, document["offset"], checksums.reshape(len(names), -1))
