"""Encoding, and decoding with validation, of index records: small objects that commit segments.

    {"crc32c":"xxxxxxxx","record":{"format":1,"rank":0,"seq":3,"bytes":8392704,
     "modes":"ttte","steps":[30,31,32,33],"time":1763697453.25,"microseconds":[0,9012,18006,21777],
     "dropped":0,
     "columns":[{"names":["losses/loss"],"reductions":null,"rows":[0,1,2],"offset":1024,
                 "crc32c":"xxxxxxxx"}],
     "tensors":[{"dtype":"F32","names":["weights/a","weights/b"],"shapes":[[3,2],[3]],"rows":null,
                 "offset":1048,"crc32c":"xxxxxxxx..."}],
     "aliases":[{"names":["inputs/c"],"of":["weights/a"],"rows":null}]}}

`rows` of a group are the segment's rows at which it was captured, null for all. `offset` counts
from the start of the segment file. The checksums of tensors are ordered by tensor and then by row,
eight digits each. `aliases` is omitted if there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.store.dtypes import ITEM_BYTES
from vinedresser.store.index.document import Document, seal, to_json, unseal
from vinedresser.store.index.index_record import (
    FORMAT,
    LETTERS,
    AliasGroup,
    ColumnGroup,
    IndexRecord,
    Rows,
    TensorGroup,
)
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, LayoutPool, TensorLayout

__all__ = [
    "Layout",
    "Layouts",
    "body_document",
    "body_of",
    "check_format",
    "decode_record",
    "encode_record",
    "layout_document",
    "layouts_in",
]

Layout = TensorLayout | ColumnLayout | AliasLayout

# Numpy's limits.
_MOST_AXES = 64
_MOST_BYTES = 2**62

# The mode of each letter.
_NO_MODE = 255
_BYTES = np.frombuffer(LETTERS.encode(), np.uint8)
_CODES = np.full(256, _NO_MODE, np.uint8)
_CODES[_BYTES] = np.arange(len(LETTERS))


def encode_record(record: IndexRecord) -> bytes:
    """Return an index record as the bytes to store."""
    place = {"format": FORMAT, "rank": record.rank, "seq": record.seq}
    return seal("record", to_json(place | body_document(record, layout_document)).encode())


def layout_document(layout: Layout) -> dict[str, Any]:
    """Return a layout as JSON."""
    if isinstance(layout, ColumnLayout):
        return {"names": layout.names, "reductions": layout.reductions}
    if isinstance(layout, AliasLayout):
        return {"names": layout.names, "of": layout.targets}
    return {"dtype": layout.dtype, "names": layout.names, "shapes": layout.shapes}


def body_document(
    record: IndexRecord, describe: Callable[[Layout], dict[str, Any]]
) -> dict[str, Any]:
    """Return a record as JSON, without its rank and number.

    Args:
        describe: returns the JSON that identifies a layout.
    """
    first = float(record.rows.times[0])
    body = {
        "bytes": record.size,
        "modes": record.rows.letters(),
        "steps": record.rows.steps.tolist(),
        "time": first,
        "microseconds": np.rint((record.rows.times - first) * 1e6).astype(np.int64).tolist(),
        "dropped": record.dropped,
        "columns": [
            describe(group.layout)
            | {
                "rows": _row_list(group.rows),
                "offset": group.offset,
                "crc32c": f"{group.checksum:08x}",
            }
            for group in record.columns
        ],
        "tensors": [
            describe(group.layout)
            | {
                "rows": _row_list(group.rows),
                "offset": group.offset,
                "crc32c": group.checksums.astype(">u4").tobytes().hex(),
            }
            for group in record.tensors
        ],
    }
    if record.aliases:
        body["aliases"] = [
            describe(group.layout) | {"rows": _row_list(group.rows)} for group in record.aliases
        ]
    return body


def _row_list(rows: NDArray[np.int64] | None) -> list[int] | None:
    return None if rows is None else rows.tolist()


class Layouts(NamedTuple):
    """Functions that return the layout of a group of a record."""

    columns: Callable[[Document], ColumnLayout]
    tensors: Callable[[Document], TensorLayout]
    aliases: Callable[[Document], AliasLayout]


def decode_record(content: bytes, pool: LayoutPool, rank: int, seq: int) -> IndexRecord:
    """Decode an index record (see `encode_record`).

    Args:
        content: the stored bytes.
        pool: shares equal layouts.
        rank: expected rank.
        seq: expected number.

    Raises:
        CorruptData: it is not this record, or not a record; the message does not name its key.
    """
    document = Document(unseal("record", content), "record")
    check_format(document)
    found = document.integer("rank"), document.integer("seq")
    if found != (rank, seq):
        raise CorruptData(f"it is the record of segment {found[1]} of rank {found[0]}")
    return body_of(document, layouts_in(pool), rank, seq)


def check_format(document: Document) -> None:
    """Check the format version of a document.

    Raises:
        CorruptData: the version is not supported.
    """
    found = document.take("format")
    if found != FORMAT:
        raise CorruptData(f"format {found} is not supported, only {FORMAT}")


def layouts_in(pool: LayoutPool) -> Layouts:
    """Return functions that decode layouts (see `layout_document`)."""
    return Layouts(
        lambda document: _column_layout(document, pool),
        lambda document: _tensor_layout(document, pool),
        lambda document: _alias_layout(document, pool),
    )


def body_of(document: Document, layouts: Layouts, rank: int, seq: int) -> IndexRecord:
    """Decode the body of an index record (see `body_document`).

    Args:
        document: the JSON object.
        layouts: return the layouts of its groups.
        seq: number of the record.

    Raises:
        CorruptData: a value is missing or invalid.
    """
    size = document.integer("bytes")
    rows = _rows(document)
    count = len(rows.steps)
    columns = tuple(
        _column_group(each, layouts.columns(each), count, size)
        for each in document.objects("columns", "group of columns")
    )
    tensors = tuple(
        _tensor_group(each, layouts.tensors(each), count, size)
        for each in document.objects("tensors", "group of tensors")
    )
    aliases: tuple[AliasGroup, ...] = ()
    if "aliases" in document:
        stored = {name for group in tensors for name in group.layout.names}
        aliases = tuple(
            _alias_group(each, layouts.aliases(each), count, stored)
            for each in document.objects("aliases", "group of aliases")
        )
    dropped = document.integer("dropped")
    return IndexRecord(rank, seq, size, rows, columns, tensors, aliases, dropped)


def _rows(document: Document) -> Rows:
    steps = document.integers("steps")
    letters = document.text("modes")
    # Non-ASCII characters become question marks, which are not modes either.
    modes = _CODES[np.frombuffer(letters.encode("ascii", "replace"), np.uint8)]
    if len(modes) != len(steps) or (modes == _NO_MODE).any():
        raise document.refuse("modes", f"{len(steps)} letters of {LETTERS}")
    later = document.integers("microseconds", len(steps))
    times = np.float64(document.number("time")) + later * 1e-6
    return Rows(modes, steps, times.astype(np.float64))


def _row_array(document: Document, count: int) -> NDArray[np.int64] | None:
    """Return the rows of a group, int64 [n]; None for all rows of the segment."""
    if document.take("rows") is None:
        return None
    rows = document.integers("rows")
    if rows[0] < 0 or rows[-1] >= count or not (np.diff(rows) > 0).all():
        raise document.refuse("rows", f"rows below {count}, ascending")
    return rows


def _offset(document: Document, length: int, size: int) -> int:
    """Return the offset of a group of some length in a file of some size."""
    offset = document.integer("offset")
    if offset + length > size:
        raise document.refuse("offset", f"{length} bytes before the end at {size}")
    return offset


def _checksums(document: Document, count: int) -> NDArray[np.uint32]:
    digits = document.text("crc32c")
    try:
        content = bytes.fromhex(digits)
    except ValueError:
        content = b""
    # The length of the text is not enough, since spaces between bytes are skipped.
    if len(content) != 4 * count:
        raise document.refuse("crc32c", f"{8 * count} hexadecimal digits")
    return np.frombuffer(content, ">u4").astype(np.uint32)


def _column_layout(document: Document, pool: LayoutPool) -> ColumnLayout:
    reductions = document.take("reductions")
    return pool.columns(
        _distinct(document, "names"),
        None if reductions is None else _distinct(document, "reductions"),
    )


def _column_group(document: Document, layout: ColumnLayout, count: int, size: int) -> ColumnGroup:
    rows = _row_array(document, count)
    length = layout.row_bytes * (count if rows is None else len(rows))
    offset = _offset(document, length, size)
    return ColumnGroup(layout, rows, offset, int(_checksums(document, 1)[0]))


def _tensor_layout(document: Document, pool: LayoutPool) -> TensorLayout:
    dtype = document.text("dtype")
    if dtype not in ITEM_BYTES:
        raise document.refuse("dtype", "a known dtype")
    names = _distinct(document, "names")
    shapes = document.take("shapes")
    if not isinstance(shapes, list) or len(shapes) != len(names):
        raise document.refuse("shapes", "a list of as many shapes as there are names")
    if not all(_is_shape(shape, ITEM_BYTES[dtype]) for shape in shapes):
        raise document.refuse("shapes", "a list of shapes")
    return pool.tensors(dtype, names, tuple(map(tuple, shapes)))


def _is_shape(shape: object, item: int) -> bool:
    if not isinstance(shape, list) or len(shape) > _MOST_AXES or set(map(type, shape)) - {int}:
        return False
    # Numpy multiplies the non-zero axes even if another is zero.
    return all(axis >= 0 for axis in shape) and item * prod(filter(None, shape)) <= _MOST_BYTES


def _tensor_group(document: Document, layout: TensorLayout, count: int, size: int) -> TensorGroup:
    rows = _row_array(document, count)
    places = count if rows is None else len(rows)
    offset = _offset(document, sum(layout.row_bytes) * places, size)
    checksums = _checksums(document, len(layout.names) * places)
    return TensorGroup(layout, rows, offset, checksums.reshape(len(layout.names), places))


def _alias_layout(document: Document, pool: LayoutPool) -> AliasLayout:
    names, targets = _distinct(document, "names"), document.texts("of")
    if len(targets) != len(names):
        raise document.refuse("of", "a list of as many tensors as there are names")
    return pool.aliases(names, targets)


def _alias_group(
    document: Document, layout: AliasLayout, count: int, stored: set[str]
) -> AliasGroup:
    if not stored.issuperset(layout.targets):
        raise CorruptData("the group of aliases names tensors that are not stored")
    return AliasGroup(layout, _row_array(document, count))


def _distinct(document: Document, key: str) -> tuple[str, ...]:
    names = document.texts(key)
    if len(set(names)) < len(names):
        raise document.refuse(key, "a list of different texts")
    return names
