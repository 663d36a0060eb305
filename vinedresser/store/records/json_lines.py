"""Files with a JSON object on each line, which grow at their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from vinedresser.objects import Storage
from vinedresser.objects.base import get_or_none
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.records.machine import SystemRecord
from vinedresser.store.records.requests import ControlRecord

__all__ = ["read_journal", "read_json_lines"]

_Entry = TypeVar("_Entry")
_Line = TypeVar("_Line", ControlRecord, SystemRecord)


def read_journal(storage: Storage, kind: type[_Line], faults: list[str]) -> list[_Line]:
    """Return the readable lines of the only journal of their kind in a run, in order.

    Args:
        faults: receives one sentence if lines are damaged.

    Raises:
        StoreError: the storage refused.
    """
    return read_json_lines(
        get_or_none(storage, kind.KEY) or b"",
        lambda line: kind.from_json(parse_json(line)),
        place=f"{storage.location}/{kind.KEY}",
        what=kind.ENTRY,
        faults=faults,
    )


def read_json_lines(
    content: bytes, parse: Callable[[bytes], _Entry], *, place: str, what: str, faults: list[str]
) -> list[_Entry]:
    """Return the readable entries of a file.

    Args:
        place: name of the file, for messages.
        what: name of an entry with its article, for messages.
        faults: receives one sentence if lines are damaged.
    """
    found: list[_Entry] = []
    damaged: list[str] = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            found.append(parse(line))
        except DAMAGE as error:
            damaged.append(f"line {number} is not {what}: {error}")
    if damaged:
        more = f" (and {len(damaged) - 1} more such lines)" if len(damaged) > 1 else ""
        faults.append(f"{place}: {damaged[0]}{more}; ignored")
    return found
