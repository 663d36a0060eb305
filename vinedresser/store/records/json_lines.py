"""Files with a JSON object on each line, which grow at their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from vinedresser.store.json_values import DAMAGE

_Entry = TypeVar("_Entry")


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
