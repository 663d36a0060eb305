"""The JSON header of a segment, which makes it a safetensors file that explains itself.

`__metadata__` holds, beside format, rank and seq, as JSON in JSON:

- `rows`: the records of the segment: their modes by first letter, and their steps.
- `columns`: for each matrix [entry, names, reductions, rows]: the names along its second axis, the
  statistics along its third (null for scalars: it has none), its rows (null: all).
- `partial`: [rows, entries] for tensors that were not captured at every row.
- `variants`: the tensor's name by entry, where it has another: the tensor changed shape or type
  within the segment, so that it has several entries.
- `aliases`: [rows, names] for tensors that are not here under their own name, since at these rows
  (null: all) they had the very elements of another, which is: that tensor's name by their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vinedresser.store.index.index_record import FORMAT, Rows
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, TensorLayout
from vinedresser.store.index.sealing import to_json

__all__ = ["SegmentHeader"]

_RESERVED = "__metadata__"


class SegmentHeader:
    """Collects the entries in the order in which their data will follow, without gaps.

    Args:
        rows: the records of the segment.
        taken: names of all its tensors; entries that are none get other names.
    """

    def __init__(self, rows: Rows, taken: set[str]) -> None:
        self._rows = rows
        self._used = taken | {_RESERVED}
        self._entries: dict[str, Any] = {}
        self._columns: list[Any] = []
        self._partial: list[Any] = []
        self._variants: dict[str, str] = {}
        self._aliases: list[Any] = []
        self._offset = 0

    def add_columns(self, layout: ColumnLayout, rows: Sequence[int]) -> None:
        """Add a matrix that was captured at some rows."""
        entry = self._fresh("columns")
        shape = layout.shape(len(rows))
        self._enter(entry, "F64", shape, layout.row_bytes * len(rows))
        where = None if self._whole(rows) else rows
        self._columns.append([entry, layout.names, layout.reductions, where])

    def add_tensors(self, layout: TensorLayout, rows: Sequence[int]) -> None:
        """Add tensors that were captured at the same rows."""
        entries = []
        for name, shape, size in zip(layout.names, layout.shapes, layout.row_bytes, strict=True):
            entry = name
            if name in self._entries or name == _RESERVED:
                entry = self._fresh(name)
                self._variants[entry] = name
            self._enter(entry, layout.dtype, (len(rows), *shape), size * len(rows))
            entries.append(entry)
        if not self._whole(rows):
            self._partial.append([rows, entries])

    def add_aliases(self, layout: AliasLayout, rows: Sequence[int]) -> None:
        """Add further names of tensors, which they had at the same rows."""
        where = None if self._whole(rows) else rows
        self._aliases.append([where, dict(zip(layout.names, layout.targets, strict=True))])

    def encode(self, rank: int, seq: int) -> bytes:
        """Return its length and the header, padded so that the data begins at a multiple of 8."""
        told = {
            "rows": [self._rows.letters(), self._rows.steps.tolist()],
            "columns": self._columns,
            "partial": self._partial,
            "variants": self._variants,
            "aliases": self._aliases,
        }
        metadata = {"format": f"vinedresser.segment.{FORMAT}", "rank": str(rank), "seq": str(seq)}
        metadata |= {key: to_json(value) for key, value in told.items() if value}
        header = to_json({_RESERVED: metadata, **self._entries}).encode()
        header += b" " * (-len(header) % 8)
        return len(header).to_bytes(8, "little") + header

    def _enter(self, entry: str, dtype: str, shape: Sequence[int], size: int) -> None:
        span = [self._offset, self._offset + size]
        self._entries[entry] = {"dtype": dtype, "shape": shape, "data_offsets": span}
        self._offset += size

    def _whole(self, rows: Sequence[int]) -> bool:
        return len(rows) == len(self._rows.steps)

    def _fresh(self, name: str) -> str:
        """Return a name that no tensor and no other entry has."""
        number = 1
        while f"{name}#{number}" in self._used:
            number += 1
        self._used.add(f"{name}#{number}")
        return f"{name}#{number}"
