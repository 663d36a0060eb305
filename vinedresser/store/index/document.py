"""JSON that came from a file, taken apart with nothing taken for granted.

A checksum says that bytes are as they were written, not that a writer of this version wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData

__all__ = ["Document"]

_MOST = 2**63 - 1


class Document:
    """A JSON object whose values have the type and range that is asked for, or are refused.

    Args:
        value: what `json.loads` gave.
        what: what it is said to be, for messages.
    """

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise CorruptData(f"the {what} is {_shown(value)}, not a JSON object")
        self._fields: dict[str, Any] = value
        self._what = what

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def refuse(self, key: str, wanted: str) -> CorruptData:
        """Return the error that says that a value is not what it should be."""
        return CorruptData(
            f"{key} of the {self._what} is {_shown(self._fields.get(key))}, not {wanted}"
        )

    def take(self, key: str) -> Any:
        """Return a value of any type.

        Raises:
            CorruptData: there is none.
        """
        if key not in self._fields:
            raise CorruptData(f"the {self._what} has no {key}")
        return self._fields[key]

    def integer(self, key: str, most: int = _MOST) -> int:
        """Return a number from 0 to a limit.

        Raises:
            CorruptData: it is missing, or no such number.
        """
        value = self.take(key)
        if type(value) is not int or not 0 <= value <= most:
            raise self.refuse(key, f"an integer from 0 to {most}")
        return value

    def number(self, key: str) -> float:
        """Return a finite number.

        Raises:
            CorruptData: it is missing, or no such number.
        """
        value = self.take(key)
        if type(value) not in (int, float) or not abs(value) <= 1e300:
            raise self.refuse(key, "a finite number")
        return float(value)

    def text(self, key: str) -> str:
        """Return a text.

        Raises:
            CorruptData: it is missing, or no text.
        """
        value = self.take(key)
        if not isinstance(value, str):
            raise self.refuse(key, "a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, which has at least one.

        Raises:
            CorruptData: it is missing, or no such list.
        """
        value = self.take(key)
        if not isinstance(value, list) or not value or set(map(type, value)) != {str}:
            raise self.refuse(key, "a list of texts")
        return tuple(value)

    def integers(self, key: str, count: int | None = None) -> NDArray[np.int64]:
        """Return a list of integers, which has at least one.

        Raises:
            CorruptData: it is missing, no such list, or not as long as ``count`` says.
        """
        value = self.take(key)
        if not isinstance(value, list) or not value or set(map(type, value)) != {int}:
            raise self.refuse(key, "a list of integers")
        if count is not None and len(value) != count:
            raise CorruptData(f"{key} of the {self._what} has {len(value)} integers, not {count}")
        try:
            return np.array(value, np.int64)
        except OverflowError:
            raise self.refuse(key, "a list of integers of 64 bits") from None

    def objects(self, key: str, what: str) -> Iterator[Document]:
        """Yield the objects of a list.

        Raises:
            CorruptData: it is missing, or no such list.
        """
        value = self.take(key)
        if not isinstance(value, list):
            raise self.refuse(key, "a list")
        return (Document(each, what) for each in value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
