"""The JSON header of a segment, which makes it a self-describing safetensors file.

Besides format, rank and seq, `__metadata__` contains as nested JSON:

- `rows`: the records of the segment: their modes by first letter, and their steps.
- `columns`: [entry, names, reductions, rows] for each matrix: the names along its second axis, the
  statistics along its third (null for scalars, which have none), its rows (null: all).
- `partial`: [rows, entries] for tensors that were not captured at every row.
- `variants`: maps an entry to the tensor's name if they differ: a tensor that changed its shape or
  dtype within the segment has several entries.
- `aliases`: [rows, names] for tensors that shared the memory of a stored tensor at these rows
  (null: all); names maps each to the stored tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vinedresser.store.index.document import to_json
from vinedresser.store.index.index_record import FORMAT, Rows
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, TensorLayout

_RESERVED = "__metadata__"


class SegmentHeader:
    """Collects the entries in the order of their data, which follows without gaps.

    Args:
        rows: the records of the segment.
        taken: names of all its tensors, not available for other entries.
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
        """Add a matrix captured at some rows."""
        entry = self._fresh("columns")
        shape = layout.shape(len(rows))
        self._enter(entry, "F64", shape, layout.row_bytes * len(rows))
        where = None if self._whole(rows) else rows
        self._columns.append([entry, layout.names, layout.reductions, where])

    def add_tensors(self, layout: TensorLayout, rows: Sequence[int]) -> None:
        """Add tensors captured at the same rows."""
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
        """Add aliases of tensors at the same rows."""
        where = None if self._whole(rows) else rows
        self._aliases.append([where, dict(zip(layout.names, layout.targets, strict=True))])

    def encode(self, rank: int, seq: int) -> bytes:
        """Return the header with its length, padded so that the data is aligned to 8 bytes."""
        contents = {
            "rows": [self._rows.letters(), self._rows.steps.tolist()],
            "columns": self._columns,
            "partial": self._partial,
            "variants": self._variants,
            "aliases": self._aliases,
        }
        metadata = {"format": f"vinedresser.segment.{FORMAT}", "rank": str(rank), "seq": str(seq)}
        metadata |= {key: to_json(value) for key, value in contents.items() if value}
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
        """Return a name that no tensor or entry has."""
        number = 1
        while f"{name}#{number}" in self._used:
            number += 1
        self._used.add(f"{name}#{number}")
        return f"{name}#{number}"
