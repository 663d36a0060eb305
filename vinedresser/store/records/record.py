"""What all records have in common: small JSON objects that are stored and read whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, TypeVar

from vinedresser.errors import CorruptData, KeyMissing, KeyTaken
from vinedresser.store.records.json_fields import known_fields
from vinedresser.store.storage import Storage

__all__ = [
    "Record",
    "read_record",
    "write_first",
    "write_numbered",
    "write_record",
]

R = TypeVar("R", bound="Record")


@dataclass(frozen=True)
class Record:
    """A small JSON object under a fixed key; subclasses are the contract, field by field."""

    KEY: ClassVar[str]

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Build the record; keys of a newer format are left out.

        Raises:
            TypeError: a field without a default is missing, or has a value of another type.
        """
        return cls(**known_fields(cls, document))

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON types."""
        return asdict(self)


def write_record(
    storage: Storage, record: Record, *, key: str | None = None, exclusive: bool = False
) -> None:
    """Store a record atomically under its key.

    Raises:
        KeyTaken: ``exclusive`` and there is one already.
        StoreError: the storage refused.
    """
    text = json.dumps(record.to_json(), indent=1, allow_nan=True) + "\n"
    storage.put(key or record.KEY, [text.encode()], exclusive=exclusive)


def read_record(storage: Storage, kind: type[R], *, key: str | None = None) -> R | None:
    """Return a record, or None when it is not there (yet).

    Raises:
        CorruptData: it is not a JSON object with the fields of its kind.
        StoreError: the storage refused.
    """
    key = key or kind.KEY
    try:
        content = storage.get(key)
    except KeyMissing:
        return None
    try:
        return kind.from_json(json.loads(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptData(f"{storage.location}/{key}: not a {kind.__name__}: {error}") from error


def write_first(storage: Storage, record: R) -> R:
    """Store a record unless there is one of its kind, and return the one that is there.

    Raises:
        CorruptData: the one that is there cannot be read.
        StoreError: the storage refused.
    """
    try:
        write_record(storage, record, exclusive=True)
    except KeyTaken:
        return read_record(storage, type(record)) or record
    return record


def write_numbered(storage: Storage, record: Record, key: Callable[[int], str]) -> int:
    """Store a record under the first free number, and return that.

    Args:
        storage: the run's.
        record: of a kind that lies in a folder of its own, named like its `KEY`.
        key: returns the key of a number; numbers begin at 0.

    Raises:
        StoreError: the storage refused.
    """
    number = len(storage.list(f"{record.KEY}/"))
    while True:
        try:
            write_record(storage, record, key=key(number), exclusive=True)
        except KeyTaken:
            number += 1
            continue
        return number
