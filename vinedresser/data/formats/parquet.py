"""Parquet, by pyarrow: a record is a row, and row groups are read at once."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from vinedresser.data.formats.base import Chunk, Defect, Entry, Flaw, Marks, Records, picked
from vinedresser.data.formats.recognition import looks_like
from vinedresser.data.sources.base import DataObject
from vinedresser.errors import ConfigError, DamagedData, did_you_mean


class ParquetFormat:
    """See `Format`; the values are mappings of columns to Python values.

    Args:
        columns: names of the columns to read; None: all.
    """

    def __init__(self, columns: Sequence[str] | None) -> None:
        self._columns = None if columns is None else list(columns)

    def marks(self, found: DataObject) -> Marks:
        """See `Format.marks`; reads the footer only. A mark is a row group."""
        try:
            footer = _footer(found)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            head = found.read(0, min(found.size, 512))
            raise DamagedData(
                found.uri, 0, 0, f"not a Parquet file ({error}){looks_like(head)}"
            ) from error
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        return Marks(
            [0, *accumulate(group.total_byte_size for group in groups)],
            [0, *accumulate(group.num_rows for group in groups)],
        )

    def load(self, found: DataObject, chunk: Chunk) -> pa.Table | str:
        """See `Format.load`; what is wrong if the rows cannot be decoded.

        Raises:
            ConfigError: a column does not exist.
        """
        footer = _footer(found)
        names = footer.schema.to_arrow_schema().names
        for column in self._columns or ():
            # A part of a nested column is "column.part".
            if column not in names and column.partition(".")[0] not in names:
                raise ConfigError(f"{found.uri}: no column {column!r}{did_you_mean(column, names)}")
        starts = [
            0,
            *accumulate(footer.row_group(i).num_rows for i in range(footer.num_row_groups)),
        ]
        groups = [
            index
            for index, start in enumerate(starts[:-1])
            if chunk.first <= start < chunk.first + chunk.records
        ]
        try:
            with parquet.ParquetFile(
                _File(found), metadata=footer, page_checksum_verification=True
            ) as file:
                return file.read_row_groups(groups, columns=self._columns)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            return str(error)

    def records(self, loaded: pa.Table | str, chunk: Chunk) -> Records:
        """See `Format.records`; rows have no offsets of their own, all have that of the chunk."""
        rows = np.arange(chunk.records, dtype=np.int64)
        offsets = np.full(chunk.records, chunk.start, np.int64)
        if isinstance(loaded, str):
            flaws = [
                Flaw(chunk.start, chunk.first + index, loaded) for index in range(chunk.records)
            ]
            return Records(None, rows, rows + 1, offsets, flaws)
        return Records(loaded.to_pylist(), rows, rows + 1, offsets, [])

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Format.values`."""
        return picked(entries)


@lru_cache(maxsize=256)
def _footer(found: DataObject) -> Any:
    return parquet.read_metadata(_File(found))


class _File(io.RawIOBase):
    """An object as a file for pyarrow, which reads it from its own threads, one at a time."""

    def __init__(self, found: DataObject) -> None:
        self._found = found
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._found.size}
        self._position = base[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._found.size if size < 0 else min(self._position + size, self._found.size)
        content = self._found.read(self._position, stop)
        self._position = stop
        return content
