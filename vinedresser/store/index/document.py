"""JSON objects that are sealed with a checksum, and read with validation.

    {"crc32c":"xxxxxxxx","<kind>":{...}}

The checksum, CRC32C in eight hexadecimal digits, covers the stored bytes of the inner object. It
proves that bytes are as they were written, not that this version wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.store.json_values import checker, shown

__all__ = ["Document", "seal", "to_json", "unseal"]

to_json = json.JSONEncoder(separators=(",", ":")).encode

_HEAD = b'{"crc32c":"'
_DIGITS = 8
_MOST = 2**63 - 1

_IS_INTEGER, _IS_NUMBER, _IS_STRING = checker(int), checker(float), checker(str)
_IS_LIST, _ARE_INTEGERS, _ARE_STRINGS = checker(list[Any]), checker(list[int]), checker(list[str])
_INTEGERS = "a list of integers of 64 bits"


def seal(kind: str, content: bytes) -> bytes:
    """Return JSON with its checksum prepended."""
    return b'%s%08x","%s":%s}' % (_HEAD, crc32.iscsi(content), kind.encode(), content)


def unseal(kind: str, sealed: bytes, parse: Callable[[bytes], object] = json.loads) -> object:
    """Return the inner value of a sealed object.

    Args:
        parse: reads its JSON; `Document` checks what the faster default lets pass.

    Raises:
        CorruptData: the checksum does not match, or it is not a sealed object of this kind.
    """
    middle = len(_HEAD) + _DIGITS
    name = f'","{kind}":'.encode()
    start = middle + len(name)
    if sealed[: len(_HEAD)] != _HEAD or sealed[middle:start] != name or sealed[-1:] != b"}":
        raise CorruptData(f"not a sealed {kind}")
    content = sealed[start:-1]
    if sealed[len(_HEAD) : middle] != b"%08x" % crc32.iscsi(content):
        raise CorruptData("its checksum does not match")
    try:
        inner = parse(content)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"its {kind} is not JSON: {error}") from error
    return inner


class Document:
    """A JSON object whose values are returned if they have the requested type and range.

    All methods that return values raise `CorruptData` if the value is missing or invalid.

    Args:
        value: result of `json.loads`.
        what: description of the object, for messages.

    Raises:
        CorruptData: the value is not an object.
    """

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise CorruptData(f"the {what} is {shown(value)}, not a JSON object")
        self._fields: dict[str, Any] = value
        self._what = what

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def refuse(self, key: str, wanted: str) -> CorruptData:
        """Return the error for an invalid value.

        Args:
            wanted: description of a valid value.
        """
        return CorruptData(
            f"{key} of the {self._what} is {shown(self._fields.get(key))}, not {wanted}"
        )

    def take(self, key: str) -> Any:
        """Return a value of any type."""
        if key not in self._fields:
            raise CorruptData(f"the {self._what} has no {key}")
        return self._fields[key]

    def integer(self, key: str, most: int = _MOST) -> int:
        """Return an integer from 0 to ``most``."""
        value: int = self._checked(key, _IS_INTEGER, f"an integer from 0 to {most}")
        if not 0 <= value <= most:
            raise self.refuse(key, f"an integer from 0 to {most}")
        return value

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self._checked(key, _IS_NUMBER, "a finite number")
        if not abs(value) <= 1e300:
            raise self.refuse(key, "a finite number")
        return float(value)

    def text(self, key: str) -> str:
        """Return a string."""
        value: str = self._checked(key, _IS_STRING, "a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a non-empty list of strings."""
        return tuple(self._non_empty(key, _ARE_STRINGS, "a list of strings"))

    def integers(self, key: str, count: int | None = None) -> NDArray[np.int64]:
        """Return a non-empty list of integers; int64 [count].

        Args:
            count: required length; None: any.
        """
        value = self._non_empty(key, _ARE_INTEGERS, _INTEGERS)
        if count is not None and len(value) != count:
            raise CorruptData(f"{key} of the {self._what} has {len(value)} integers, not {count}")
        try:
            return np.array(value, np.int64)
        except OverflowError:
            raise self.refuse(key, _INTEGERS) from None

    def objects(self, key: str, what: str) -> Iterator[Document]:
        """Yield the objects of a list.

        Args:
            what: description of each object, for messages.
        """
        return (Document(each, what) for each in self._checked(key, _IS_LIST, "a list"))

    def _checked(self, key: str, fits: Callable[[Any], bool], wanted: str) -> Any:
        value = self.take(key)
        if not fits(value):
            raise self.refuse(key, wanted)
        return value

    def _non_empty(self, key: str, fits: Callable[[Any], bool], wanted: str) -> list[Any]:
        value: list[Any] = self._checked(key, fits, wanted)
        if not value:
            raise self.refuse(key, wanted)
        return value
