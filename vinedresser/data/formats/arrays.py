"""npy and safetensors: a record is a row, the same index of every array.

npy is described in numpy.lib.format, safetensors in https://github.com/huggingface/safetensors,
"Format". The arrays of a safetensors file need the same length.
"""

from __future__ import annotations

import io
import json
import math
import struct
import tokenize
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.lib import format as npy

from vinedresser.data.formats.base import Chunk, Defect, Entry, Marks, Records, picked
from vinedresser.data.formats.recognition import looks_like
from vinedresser.data.sources.base import DataObject
from vinedresser.errors import DamagedData

__all__ = ["ArrayFormat", "npy_format", "safetensors_format"]

# Bytes between two marks.
_BETWEEN_MARKS = 256 << 10
# The safetensors library refuses longer headers, too.
_MOST_HEADER = 100_000_000
_TYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "BOOL": np.bool_,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


class _Array(NamedTuple):
    """An array of an object.

    Attributes:
        name: its name, "" in npy.
        type: of its elements.
        start: byte offset of its first element.
    """

    name: str
    type: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def row_bytes(self) -> int:
        return self.type.itemsize * math.prod(self.shape[1:])


class ArrayFormat:
    """See `Format`.

    Args:
        name: name of the format with its article, for messages.
        arrays_of: reads the header of an object; raises ValueError if it is invalid.
        unnamed: the values are arrays, not mappings of names to arrays.
    """

    def __init__(
        self, name: str, arrays_of: Callable[[DataObject], list[_Array]], *, unnamed: bool
    ) -> None:
        self._name = name
        self._arrays_of = arrays_of
        self._unnamed = unnamed
        self._known: dict[str, tuple[str, list[_Array]]] = {}

    def marks(self, found: DataObject) -> Marks:
        """See `Format.marks`; reads the header only."""
        arrays = self._arrays(found)
        rows, row_bytes = arrays[0].shape[0], sum(array.row_bytes for array in arrays)
        step = max(_BETWEEN_MARKS // max(row_bytes, 1), 1)
        numbers = [*range(0, rows, step), rows]
        return Marks([number * row_bytes for number in numbers], numbers)

    def load(self, found: DataObject, chunk: Chunk) -> list[tuple[_Array, bytes]]:
        """See `Format.load`."""
        parts = []
        for array in self._arrays(found):
            start = array.start + chunk.first * array.row_bytes
            parts.append((array, found.read(start, start + chunk.records * array.row_bytes)))
        return parts

    def records(self, loaded: list[tuple[_Array, bytes]], chunk: Chunk) -> Records:
        """See `Format.records`; the offsets are those in the first array of the file."""
        # A bytearray, so that the rows can be written to, which torch demands.
        columns = {
            array.name: np.frombuffer(bytearray(content), array.type).reshape(
                chunk.records, *array.shape[1:]
            )
            for array, content in loaded
        }
        first = loaded[0][0]
        rows = np.arange(chunk.records, dtype=np.int64)
        offsets = first.start + (rows + chunk.first) * first.row_bytes
        content = columns[""] if self._unnamed else columns
        return Records(content, rows, rows + 1, offsets, [])

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Format.values`."""
        if self._unnamed:
            return picked(entries)
        return [
            {name: column[row] for name, column in columns.items()} for columns, row, _ in entries
        ], []

    def _arrays(self, found: DataObject) -> list[_Array]:
        """Return the arrays of an object in the order of the file, at least one."""
        known = self._known.get(found.uri)
        if known is not None and known[0] == found.version:
            return known[1]
        try:
            arrays = self._arrays_of(found)
            _check(arrays, found.size)
        except ValueError as error:
            head = found.read(0, min(found.size, 512))
            raise DamagedData(
                found.uri, 0, 0, f"not {self._name} ({error}){looks_like(head)}"
            ) from error
        self._known[found.uri] = found.version, arrays
        return arrays


def npy_format() -> ArrayFormat:
    """Return the format npy."""
    return ArrayFormat("an npy file", _npy_arrays, unnamed=True)


def safetensors_format() -> ArrayFormat:
    """Return the format safetensors."""
    return ArrayFormat("a safetensors file", _safetensors_arrays, unnamed=False)


def _check(arrays: list[_Array], size: int) -> None:
    """Check that arrays have rows, equally many, inside the object."""
    if not arrays:
        raise ValueError("it has no arrays")
    for array in arrays:
        if not array.shape:
            raise ValueError(f"array {array.name!r} is a scalar, and has no rows")
        if min(array.shape) < 0 or any(type(one) is not int for one in array.shape):
            raise ValueError(f"array {array.name!r} has the shape {array.shape}")
        if array.shape[0] != arrays[0].shape[0]:
            raise ValueError(
                f"array {array.name!r} has {array.shape[0]} rows, and {arrays[0].name!r} has "
                f"{arrays[0].shape[0]}"
            )
    if not any(array.row_bytes for array in arrays):
        raise ValueError("its rows are empty")
    end = arrays[0].start
    for array in arrays:
        if array.start != end:
            raise ValueError(f"array {array.name!r} begins at byte {array.start}, not {end}")
        end += array.shape[0] * array.row_bytes
    if end != size:
        wrong = "it is cut off" if end > size else "there is more behind its arrays"
        raise ValueError(f"{wrong}: they end at byte {end}, and it has {size}")


def _npy_arrays(found: DataObject) -> list[_Array]:
    # A header that NumPy accepts by default has at most 10,000 bytes.
    file = io.BytesIO(found.read(0, min(found.size, 16 << 10)))
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"its version {version} is not supported")
    try:
        shape, fortran, kind = readers[version](file)
    except (SyntaxError, tokenize.TokenError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"its header is damaged: {error}") from error
    if kind.hasobject:
        raise ValueError("it has Python objects, which only pickle could read")
    if fortran and len(shape) > 1:
        raise ValueError("its columns are contiguous, not its rows; save it in C order")
    return [_Array("", kind, shape, file.tell())]


def _safetensors_arrays(found: DataObject) -> list[_Array]:
    if found.size < 8:
        raise ValueError("it is cut off")
    (length,) = struct.unpack("<Q", found.read(0, 8))
    if length > min(found.size - 8, _MOST_HEADER):
        raise ValueError("its header does not fit into it")
    match _parsed(found.read(8, 8 + length)):
        case dict() as header:
            header.pop("__metadata__", None)
        case _:
            raise ValueError("its header is not a JSON object")
    arrays = [_safetensors_array(name, entry, 8 + length) for name, entry in header.items()]
    return sorted(arrays, key=lambda array: array.start)


def _parsed(header: bytes) -> Any:
    try:
        return json.loads(header.decode())
    except RecursionError as error:
        raise ValueError("its header is nested too deeply") from error


def _safetensors_array(name: str, entry: Any, base: int) -> _Array:
    match entry:
        case {"dtype": str(kind), "shape": [*shape], "data_offsets": [int(begin), int(end)]} if all(
            isinstance(one, int) for one in shape
        ):
            pass
        case _:
            raise ValueError(f"the header of array {name!r} is invalid")
    if kind not in _TYPES:
        raise ValueError(f"array {name!r} has the unsupported type {kind}")
    array = _Array(name, np.dtype(_TYPES[kind]), tuple(shape), base + begin)
    if begin < 0 or end - begin != array.type.itemsize * math.prod(shape):
        raise ValueError(f"array {name!r} has another size than its shape")
    return array
