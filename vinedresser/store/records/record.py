"""Records: small JSON objects that are stored and read as a whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, TypeVar

from vinedresser.errors import CorruptData, KeyTaken
from vinedresser.objects import Storage
from vinedresser.objects.base import get_or_none
from vinedresser.store.json_values import DAMAGE, known_fields, parse_json

__all__ = [
    "Record",
    "encoded",
    "first_free",
    "read_record",
    "write_first",
    "write_numbered",
    "write_record",
]

R = TypeVar("R", bound="Record")


@dataclass(frozen=True)
class Record:
    """A small JSON object under a fixed key; subclasses define its fields."""

    KEY: ClassVar[str]
    # Whether it is written on several lines, for people.
    INDENTED: ClassVar[bool] = True

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Create the record from JSON, ignoring unknown keys of newer versions.

        Raises:
            TypeError: a field without a default is missing, or a value has the wrong type.
        """
        return cls(**known_fields(cls, document))

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON types."""
        return asdict(self)


def write_record(
    storage: Storage, record: Record, *, key: str | None = None, exclusive: bool = False
) -> None:
    """Store a record atomically.

    Args:
        key: its key; None: the `KEY` of its class.
        exclusive: do not replace an existing record.

    Raises:
        KeyTaken: ``exclusive`` and the record exists.
        StoreError: the storage refused.
    """
    storage.put(key or record.KEY, [encoded(record)], exclusive=exclusive)


def encoded(record: Record) -> bytes:
    """Return a record as it is stored."""
    document = record.to_json()
    if record.INDENTED:
        text = json.dumps(document, indent=1, allow_nan=True)
    else:
        text = json.dumps(document, separators=(",", ":"), allow_nan=True)
    return f"{text}\n".encode()


def read_record(storage: Storage, kind: type[R], *, key: str | None = None) -> R | None:
    """Return a record; None if it does not exist (yet).

    Args:
        kind: class of the record.
        key: its key; None: the `KEY` of its class.

    Raises:
        CorruptData: it is not a JSON object with the fields of its class.
        StoreError: the storage refused.
    """
    key = key or kind.KEY
    content = get_or_none(storage, key)
    if content is None:
        return None
    try:
        return kind.from_json(parse_json(content))
    except DAMAGE as error:
        raise CorruptData(
            f"{storage.location}/{key}: not a valid {kind.__name__}: {error}"
        ) from error


def write_first(storage: Storage, record: R) -> R:
    """Store a record unless it exists, and return the stored one.

    Raises:
        CorruptData: the existing record is invalid.
        StoreError: the storage refused.
    """
    try:
        write_record(storage, record, exclusive=True)
    except KeyTaken:
        return read_record(storage, type(record)) or record
    return record


def first_free(storage: Storage, folder: str, key: Callable[[int], str]) -> int:
    """Return the first number without a record; other names in the folder are ignored.

    Args:
        key: returns the key for a number from 0.

    Raises:
        StoreError: the storage refused.
    """
    taken = frozenset(storage.list(f"{folder}/"))
    return next(number for number in itertools.count() if key(number) not in taken)


def write_numbered(storage: Storage, record: Record, key: Callable[[int], str]) -> int:
    """Store a record under the first free number, and return the number.

    Args:
        record: a record whose `KEY` is the name of a folder.
        key: returns the key for a number from 0.

    Raises:
        StoreError: the storage refused.
    """
    number = first_free(storage, record.KEY, key)
    while True:
        try:
            write_record(storage, record, key=key(number), exclusive=True)
        except KeyTaken:
            number += 1
            continue
        return number
