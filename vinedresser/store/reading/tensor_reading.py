"""Reading one full tensor over all segments of a rank, with concurrent requests."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from numpy.typing import NDArray

from vinedresser.store.problems import Problems
from vinedresser.store.reading.history import History
from vinedresser.store.segments.segment import ContiguousRows, Segment
from vinedresser.store.step_record import Mode
from vinedresser.store.storage import Span

_Row = tuple[int, NDArray[Any]]


def read_tensor(
    history: History, problems: Problems, name: str, mode: Mode | None
) -> Iterator[_Row]:
    """Yield a tensor from each record that has it in full, in capture order.

    Corrupt data is skipped and added to the problems.

    Args:
        history: history of the rank.
        problems: collects corrupt data.
        name: name of the tensor.
        mode: only records of this mode; None: all.

    Yields:
        The ordinal of the record within the rank, and the tensor: read-only, of its captured shape
        and dtype.
    """
    # Requested rows; the storage draws spans ahead of the contents it yields.
    reading: deque[tuple[int, Segment, ContiguousRows]] = deque()

    def spans() -> Iterator[Span]:
        for number, segment in enumerate(history.segments):
            for piece in segment.contiguous_rows(name, mode):
                reading.append((history.first(number), segment, piece))
                yield segment.rows_span(piece)

    # Decoded rows that may follow rows of the next piece: pieces of a segment may interleave.
    ready: list[_Row] = []
    for content in history.storage.get_spans(spans()):
        first, segment, piece = reading.popleft()
        passed = bisect_left(ready, first + int(piece.rows[0]), key=itemgetter(0))
        yield from ready[:passed]
        del ready[:passed]
        found = segment.decode_rows(name, piece, content, problems)
        ready += ((first + row, value) for row, value in found)
        ready.sort(key=itemgetter(0))
        del content
    yield from ready
