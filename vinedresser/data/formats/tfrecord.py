"""TFRecord: ``uint64 length, uint32 masked CRC32C of it, content, uint32 masked CRC32C of it``.

https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details". Both checksums
are always verified.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import fastcrc
import numpy as np

from vinedresser.data.formats.base import Defect, Entry
from vinedresser.data.formats.compression import is_compressed

__all__ = ["TFRecordFraming", "framed"]

_HEADER = struct.Struct("<QI")
_checksum = fastcrc.crc32.iscsi
# Number of equal headers in a row after which more of them are looked for at once.
_EQUAL = 8
# Headers that were verified; the lengths of records repeat.
_MOST_KNOWN = 1 << 16
_known: dict[bytes, int] = {}


def framed(content: bytes) -> bytes:
    """Return a record as it is stored."""
    length = len(content).to_bytes(8, "little")
    checksums = (_masked(_checksum(part)).to_bytes(4, "little") for part in (length, content))
    return b"".join((length, next(checksums), content, next(checksums)))


class TFRecordFraming:
    """See `Framing`; the values are the contents, `bytes`."""

    name = "a TFRecord file"
    has_checksums = True

    def is_compressed(self, head: bytes) -> bool:
        """See `Framing.is_compressed`; a length may look like compressed data."""
        return is_compressed(head) and bool(self.boundaries(head, final=False)[1])

    def boundaries(self, content: bytes, *, final: bool) -> tuple[list[int], str]:
        """See `Framing.boundaries`; verifies the checksums of the lengths."""
        found = [0]
        add = found.append
        size = len(content)
        position = equal = 0
        last = b""
        while position + 12 <= size:
            header = content[position : position + 12]
            equal = equal + 1 if header == last else 0
            last = header
            if equal == _EQUAL:
                equal = 0
                ends = _equal_records(content, position, header)
                found += ends
                position = found[-1]
                if ends:
                    continue
            length = _known.get(header)
            if length is None:
                length, stored = _HEADER.unpack(header)
                if _masked(_checksum(header[:8])) != stored:
                    return found, "the checksum of its length does not match"
                if len(_known) >= _MOST_KNOWN:
                    _known.clear()
                _known[header] = length
            position += length + 16
            if position > size:
                break
            add(position)
        if final and found[-1] < size:
            return found, "it is cut off"
        return found, ""

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Framing.values`; verifies the checksums of the contents."""
        values = [content[begin + 12 : end - 4] for content, begin, end in entries]
        checksums = b"".join([content[end - 4 : end] for content, _, end in entries])
        stored = np.frombuffer(checksums, "<u4")
        computed = np.fromiter(map(_checksum, values), np.uint32, len(values))
        wrong = np.flatnonzero(_masked_all(computed) != stored).tolist()
        return values, [Defect(index, "the checksum does not match") for index in wrong]


def _equal_records(content: bytes, position: int, header: bytes) -> range:
    """Return the ends of records that follow each other from a position and have one header.

    Args:
        position: where the first one begins.
        header: the header, which was verified.
    """
    stride = int.from_bytes(header[:8], "little") + 16
    begin, count = position, _EQUAL
    while count := min(count, (len(content) - position) // stride):
        records = np.frombuffer(content, np.uint8, count * stride, position).reshape(count, stride)
        same = (records[:, :12] == np.frombuffer(header, np.uint8)).all(1)
        matching = count if same.all() else int(same.argmin())
        position += matching * stride
        if matching < count:
            break
        count *= 2
    return range(begin + stride, position + 1, stride)


def _masked(checksum: int) -> int:
    """Return a CRC32C as TFRecord stores it."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _masked_all(checksums: np.ndarray[Any, np.dtype[np.uint32]]) -> Any:
    """Return each CRC32C as TFRecord stores it; the additions of uint32 wrap around."""
    return (checksums >> np.uint32(15) | checksums << np.uint32(17)) + np.uint32(0xA282EAD8)
