"""Objects that are compressed as a whole, with gzip or zlib."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

__all__ = ["decompressed", "is_compressed"]

_GZIP = b"\x1f\x8b\x08"
# The usual compression levels.
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
# Tells gzip from zlib by the header, with windows of up to 32 KiB.
_EITHER = 32 + zlib.MAX_WBITS
# Bytes that are decompressed at a time.
_STEP = 4 << 20


def is_compressed(head: bytes) -> bool:
    """Return whether content begins like a compressed one."""
    return head.startswith((_GZIP, *_ZLIB))


def decompressed(blocks: Iterable[bytes], *, verified: bool) -> Iterator[bytes]:
    """Yield the decompressed content, in parts of at most 4 MiB.

    Args:
        blocks: one or several gzip or zlib streams, one behind the other.
        verified: hold the content of a stream until its checksum, at its end, was verified: before
            it, damaged data is decompressed to other data. What was held of a stream that is cut
            off is yielded, too.

    Raises:
        ValueError: they are damaged or cut off; raised after everything before the damage.
    """
    stream = zlib.decompressobj(_EITHER)
    complete = True
    held: list[bytes] = []
    for block in blocks:
        rest = block
        full = False
        # A full part may leave output behind, even if all input was taken.
        while rest or full:
            try:
                part = stream.decompress(rest, _STEP)
            except zlib.error as error:
                raise ValueError(f"the compressed data is damaged: {error}") from error
            if part:
                held.append(part)
            complete, full = stream.eof, len(part) == _STEP and not stream.eof
            rest = stream.unconsumed_tail
            if complete or not verified:
                yield from held
                held.clear()
            if complete:
                # Archives on tapes are padded with zeros.
                rest = stream.unused_data.lstrip(b"\0")
                stream = zlib.decompressobj(_EITHER)
    if not complete:
        yield from held
        raise ValueError("the compressed data is cut off")
