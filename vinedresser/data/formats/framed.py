"""Formats whose records lie one behind the other, each telling where the next one begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.formats.base import Chunk, Defect, Entry, Flaw, Marks, Records
from vinedresser.data.formats.compression import decompressed
from vinedresser.data.formats.recognition import looks_like
from vinedresser.data.sources.base import DataObject, blocks_of
from vinedresser.errors import DamagedData

__all__ = ["BETWEEN_MARKS", "Framed", "Framing", "Stretch"]

# Bytes between two marks: enough that an index is small, and few enough for small chunks.
BETWEEN_MARKS = 256 << 10
# Bytes that are held of a record: one without an end must not fill the memory.
_LONGEST = 1 << 30


class Stretch(NamedTuple):
    """Consecutive records of a stream.

    Attributes:
        values: their values; those of damaged records mean nothing.
        offsets: their byte offsets, int64, (records,).
        flaws: the damaged ones.
    """

    values: list[Any]
    offsets: NDArray[np.int64]
    flaws: list[Flaw]


class Framing(Protocol):
    """How consecutive bytes are divided into records."""

    # With its article, for messages.
    name: str
    # Damage of any record is noticed by itself.
    has_checksums: bool

    def is_compressed(self, head: bytes) -> bool:
        """Return whether an object is compressed as a whole, by its first 512 bytes."""

    def boundaries(self, content: bytes, *, final: bool) -> tuple[list[int], str]:
        """Return where the complete records begin.

        Args:
            content: bytes from the beginning of a record on.
            final: there is nothing behind them.

        Returns:
            The offset of each complete record and the end of the last one, ``[0]`` if there is
            none; and what is wrong there, "" if nothing is.
        """

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Format.values`; where a record begins and ends is what `boundaries` returned."""


class Framed:
    """See `Format`; a compressed object is one chunk, since it cannot be read from the middle.

    Args:
        framing: how it is divided.
    """

    def __init__(self, framing: Framing) -> None:
        self._framing = framing

    def marks(self, found: DataObject) -> Marks:
        """See `Format.marks`; reads the whole object."""
        if not found.size:
            return Marks([0], [0])
        head = found.read(0, min(found.size, 512))
        packed = self._framing.is_compressed(head)
        offsets, numbers = [0], [0]
        end = count = 0
        wrong = ""
        blocks = self._blocks(found, packed, max_concurrent=4)
        for _, boundaries, reason in self._divided(blocks):
            for boundary in boundaries[1:]:
                count += 1
                if end + boundary - offsets[-1] >= BETWEEN_MARKS:
                    offsets.append(end + boundary)
                    numbers.append(count)
            end += boundaries[-1]
            wrong = reason
        if wrong and not count:
            raise DamagedData(
                found.uri, 0, 0, f"not {self._framing.name} ({wrong}){looks_like(head)}"
            )
        flaw = Flaw(end, count, wrong) if wrong else None
        if packed:
            return Marks([0, found.size], [0, count], flaw)
        if numbers[-1] < count:
            offsets.append(end)
            numbers.append(count)
        return Marks(offsets, numbers, flaw)

    def content(self, found: DataObject, *, max_concurrent: int) -> Iterator[bytes]:
        """Yield the content of an object in blocks, decompressed if it is compressed.

        Raises:
            StoreError: it cannot be read.
            ValueError: the compressed data is damaged.
        """
        packed = self._framing.is_compressed(found.read(0, min(found.size, 512)))
        return self._blocks(found, packed, max_concurrent=max_concurrent)

    def _blocks(self, found: DataObject, packed: bool, *, max_concurrent: int) -> Iterator[bytes]:
        blocks = blocks_of(found, max_concurrent=max_concurrent)
        return self._decompressed(blocks) if packed else blocks

    def _decompressed(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        return decompressed(blocks, verified=not self._framing.has_checksums)

    def stream(self, blocks: Iterable[bytes]) -> Iterator[Stretch]:
        """Yield the records of a stream, as far as they are complete.

        If the rest of it cannot be divided into records, it is the last record, a damaged one.

        Args:
            blocks: its content.
        """
        offset = count = 0
        for content, boundaries, wrong in self._divided(blocks):
            entries = [(content, begin, end) for begin, end in pairwise(boundaries)]
            values, defects = self._framing.values(entries)
            if wrong:
                other = not count + len(values)
                kind = f"not {self._framing.name} ({wrong}){looks_like(content[:512])}"
                defects.append(Defect(len(values), kind if other else wrong))
                values.append(None)
            offsets = np.array(boundaries[: len(values)], np.int64) + offset
            flaws = [Flaw(int(offsets[at]), count + at, reason) for at, reason in defects]
            yield Stretch(values, offsets, flaws)
            offset += boundaries[-1]
            count += len(values)

    def _divided(self, blocks: Iterable[bytes]) -> Iterator[tuple[bytes, list[int], str]]:
        """Yield consecutive stretches, each from the end of the one before, and their boundaries.

        The last item of each is what is wrong behind them.
        """
        parts: list[bytes] = []
        held = wanted = 0
        try:
            for block in blocks:
                parts.append(block)
                held += len(block)
                if held < min(wanted, _LONGEST):
                    continue
                content = b"".join(parts)
                boundaries, reason = self._framing.boundaries(content, final=False)
                yield content, boundaries, reason
                if reason:
                    return
                if len(content) - boundaries[-1] >= _LONGEST:
                    yield b"", [0], "a record of more than 1 GiB"
                    return
                parts = [content[boundaries[-1] :]]
                held = len(parts[0])
                # A record longer than a block is not looked at again with each one.
                wanted = 2 * held
        except ValueError as error:
            content = b"".join(parts)
            boundaries, reason = self._framing.boundaries(content, final=False)
            yield content, boundaries, reason or str(error)
            return
        content = b"".join(parts)
        yield content, *self._framing.boundaries(content, final=True)

    def load(self, found: DataObject, chunk: Chunk) -> bytes:
        """See `Format.load`."""
        return found.read(chunk.start, chunk.stop)

    def records(self, loaded: bytes, chunk: Chunk) -> Records:
        """See `Format.records`."""
        if not chunk.start and self._framing.is_compressed(loaded):
            content, reason = self._unpacked(loaded)
        else:
            content, reason = loaded, ""
        boundaries, wrong = self._framing.boundaries(content, final=True)
        if len(boundaries) > chunk.records + 1 and not reason:
            wrong = "the object has more records than before"
            del boundaries[chunk.records :]
        # Of a stream that is cut off, what is behind the last whole record is no record.
        del boundaries[chunk.records + 1 :]
        found = len(boundaries) - 1
        # Those that are not found are empty, at the end.
        places = np.full(chunk.records + 1, boundaries[-1], np.int64)
        places[: found + 1] = boundaries
        reason = wrong or reason or "the object has fewer records than before"
        flaws = [
            Flaw(chunk.start + boundaries[-1], chunk.first + index, reason)
            for index in range(found, chunk.records)
        ]
        begins = places[:-1]
        return Records(content, begins, places[1:], begins + chunk.start, flaws)

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Format.values`."""
        return self._framing.values(entries)

    def _unpacked(self, content: bytes) -> tuple[bytes, str]:
        """Return decompressed content, and what is wrong behind it, "" if nothing is."""
        parts = []
        try:
            for part in self._decompressed([content]):
                parts.append(part)  # noqa: PERF402 (those before an error are kept)
        except ValueError as error:
            return b"".join(parts), str(error)
        return b"".join(parts), ""
