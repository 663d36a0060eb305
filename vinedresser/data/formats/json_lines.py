"""JSON lines: one JSON value per line, in UTF-8 (https://jsonlines.org)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from vinedresser.data.formats.base import Defect, Entry
from vinedresser.data.formats.compression import is_compressed

# The whitespace of JSON.
_END = re.compile(rb"\n[ \t\r\n]*")
_BYTE_ORDER_MARK = "\ufeff"
_CONTENT = re.compile(rb"[^ \t\r\n]")


class JsonLinesFraming:
    """See `Framing`; the values are parsed. The last line need not end in a line feed."""

    name = "JSON lines"
    has_checksums = False

    def is_compressed(self, head: bytes) -> bool:
        """See `Framing.is_compressed`; no JSON value begins like compressed data."""
        return is_compressed(head)

    def boundaries(self, content: bytes, *, final: bool) -> tuple[list[int], str]:
        """See `Framing.boundaries`; empty lines belong to the record before them."""
        begin = _CONTENT.search(content)
        if begin is None:
            return [0], ""
        found = [0, *(end.end() for end in _END.finditer(content, begin.start()))]
        if final and found[-1] < len(content):
            found.append(len(content))
        return found, ""

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Framing.values`."""
        values: list[Any] = []
        defects: list[Defect] = []
        for index, (content, begin, end) in enumerate(entries):
            value = None
            try:
                # Of bytes, json would guess the encoding: two of them may be one digit in UTF-16.
                value = json.loads(content[begin:end].decode().removeprefix(_BYTE_ORDER_MARK))
            except (ValueError, RecursionError) as error:
                defects.append(Defect(index, f"not valid JSON: {error}"))
            values.append(value)
        return values, defects
