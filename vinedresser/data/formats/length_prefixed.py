"""Records with their length before them: ``uint32 length`` (little-endian), then the content."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from vinedresser.data.formats.base import Defect, Entry

_length_at = struct.Struct("<I").unpack_from


class LengthPrefixedFraming:
    """See `Framing`; the values are the contents, `bytes`. There are no checksums to verify."""

    name = "a file of length-prefixed records"
    has_checksums = False

    def is_compressed(self, head: bytes) -> bool:  # noqa: ARG002 (any bytes may be a length)
        """See `Framing.is_compressed`; such objects are never compressed."""
        return False

    def boundaries(self, content: bytes, *, final: bool) -> tuple[list[int], str]:
        """See `Framing.boundaries`."""
        found = [0]
        size = len(content)
        position = 0
        while position + 4 <= size:
            position += 4 + _length_at(content, position)[0]
            if position > size:
                break
            found.append(position)
        return found, "it is cut off" if final and found[-1] < size else ""

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Framing.values`."""
        return [content[begin + 4 : end] for content, begin, end in entries], []
