"""Reader of Universal Binary JSON as written by XGBoost."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

from vinedresser.errors import CorruptData

# Type markers of the specification; numbers are big-endian.
_NUMBERS = MappingProxyType(
    {
        ord(marker): (struct.Struct(f">{code}").unpack_from, np.dtype(f">{code}"))
        for marker, code in {
            "i": "b",
            "U": "B",
            "I": "h",
            "l": "i",
            "L": "q",
            "d": "f",
            "D": "d",
        }.items()
    }
)
_CONSTANTS = MappingProxyType({ord("T"): True, ord("F"): False, ord("Z"): None})


def read_ubjson(data: bytes) -> Any:
    """Parse a document of Universal Binary JSON (draft 12).

    Typed arrays become numpy arrays that view the document's bytes without a copy.

    Raises:
        CorruptData: The document is invalid or incomplete.
    """
    try:
        return _Reader(data).value()
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise CorruptData(
            f"document of {len(data)} bytes is not valid Universal Binary JSON: "
            f"{type(error).__name__}: {error}"
        ) from error


class _Reader:
    """A parser with its position in a document."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._others: dict[int, Callable[[], Any]] = {
            ord("S"): self._text,
            ord("{"): self._object,
            ord("["): self._array,
        }

    def value(self) -> Any:
        """Parse the value at the current position."""
        marker = self._data[self._at]
        if marker in _NUMBERS:
            return self._number()
        self._at += 1
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        return self._others[marker]()

    def _number(self) -> Any:
        unpack, dtype = _NUMBERS[self._data[self._at]]
        (number,) = unpack(self._data, self._at + 1)
        self._at += 1 + dtype.itemsize
        return number

    def _text(self) -> str:
        size = self._number()
        start, self._at = self._at, self._at + size
        return self._data[start : self._at].decode()

    def _object(self) -> dict[str, Any]:
        found = {}
        while self._data[self._at] != ord("}"):
            key = self._text()
            found[key] = self.value()
        self._at += 1
        return found

    def _array(self) -> Any:
        dtype = None
        if self._data[self._at] == ord("$"):
            dtype = _NUMBERS[self._data[self._at + 1]][1]
            self._at += 2
        if self._data[self._at] != ord("#"):
            return self._open_array()
        self._at += 1
        count = self._number()
        if dtype is None:
            return [self.value() for _ in range(count)]
        start, self._at = self._at, self._at + count * dtype.itemsize
        return np.frombuffer(self._data, dtype, count, start)

    def _open_array(self) -> list[Any]:
        """Parse an array without a length prefix."""
        found = []
        while self._data[self._at] != ord("]"):
            found.append(self.value())
        self._at += 1
        return found
