"""JSON lines: one JSON value per line, in UTF-8 (https://jsonlines.org)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from vinedresser.data.formats.compression import is_compressed
from vinedresser.data.formats.framed import Defect

__all__ = ["JsonLinesFraming"]

_LINES = re.compile(rb"\S[^\n]*\n\s*")
# What is behind the last line feed, too.
_LAST_LINES = re.compile(rb"\S[^\n]*(?:\n\s*|\Z)")


class JsonLinesFraming:
    """See `Framing`; the values are parsed. The last line need not end in a line feed."""

    name = "JSON lines"

    def is_compressed(self, head: bytes) -> bool:
        """See `Framing.is_compressed`; no JSON value begins like compressed data."""
        return is_compressed(head)

    def boundaries(self, content: bytes, *, final: bool) -> tuple[list[int], str]:
        """See `Framing.boundaries`; empty lines belong to the record before them."""
        pattern = _LAST_LINES if final else _LINES
        return [0, *(found.end() for found in pattern.finditer(content))], ""

    def values(self, content: bytes, boundaries: Sequence[int]) -> tuple[list[Any], list[Defect]]:
        """See `Framing.values`."""
        values: list[Any] = []
        defects: list[Defect] = []
        for index, (start, end) in enumerate(pairwise(boundaries)):
            value = None
            try:
                value = json.loads(content[start:end])
            except (ValueError, RecursionError) as error:
                defects.append(Defect(index, f"not valid JSON: {error}"))
            values.append(value)
        return values, defects
