"""Reading columns, or one full tensor, over all segments of a rank."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.store.index.layout import ColumnLayout
from vinedresser.store.problems import Problems
from vinedresser.store.reading.history import History
from vinedresser.store.reading.series import Column, Columns
from vinedresser.store.segments.segment import ContiguousRows, Segment
from vinedresser.store.step_record import Mode
from vinedresser.store.storage import Span

__all__ = ["read_columns", "read_tensor"]

# For each name, pieces of ordinals within the rank, int64 [n], and values, float64 [n].
_Pieces = dict[str, list[tuple[NDArray[np.int64], NDArray[np.float64]]]]
_Row = tuple[int, NDArray[Any]]


def read_columns(
    history: History,
    problems: Problems,
    test: Callable[[str], bool],
    *,
    reduction: str | None,
    mode: Mode | None,
) -> Columns:
    """Read scalars, or one scalar statistic, of the names that pass a test.

    Corrupt data is skipped and added to the problems.

    Args:
        history: history of the rank.
        problems: collects corrupt data.
        test: selects names.
        reduction: name of the statistic; None for scalars.
        mode: only rows of this mode; None: all.
    """
    modes, steps, times = history.rows
    columns = []
    for name, found in _pieces(history, problems, test, reduction).items():
        ordinals = np.concatenate([piece[0] for piece in found])
        values = np.concatenate([piece[1] for piece in found])
        if len(found) > 1:
            order = np.argsort(ordinals)
            ordinals, values = ordinals[order], values[order]
        column = Column(name, steps[ordinals], values, times[ordinals], modes[ordinals])
        columns.append(column if mode is None else column.of(mode))
    return Columns(column for column in columns if len(column))


def _pieces(
    history: History, problems: Problems, test: Callable[[str], bool], reduction: str | None
) -> _Pieces:
    """Read the matrices; those of one layout are concatenated before they are split by name."""
    places = {layout: _places(layout, test, reduction) for layout in history.column_layouts}
    stacks: dict[ColumnLayout, tuple[list[NDArray[np.int64]], list[NDArray[np.float64]]]]
    stacks = defaultdict(lambda: ([], []))
    wanted = [
        (number, segment, group)
        for number, segment in enumerate(history.segments)
        for group in segment.record.columns
        if len(places[group.layout])
    ]
    spans = (segment.matrix_span(group) for _, segment, group in wanted)
    for (number, segment, group), content in zip(
        wanted, history.storage.get_spans(spans), strict=True
    ):
        try:
            matrix = segment.decode_matrix(group, content)
        except CorruptData as error:
            problems.note(str(error))
            continue
        if reduction is not None:
            matrix = matrix[:, :, (group.layout.reductions or ()).index(reduction)]
        ordinals, values = stacks[group.layout]
        ordinals.append(history.first(number) + segment.rows_of(group))
        values.append(matrix[:, places[group.layout]])
    pieces: _Pieces = {
        layout.names[place]: [] for layout in history.column_layouts for place in places[layout]
    }
    for layout, (ordinals, values) in stacks.items():
        where, joined = np.concatenate(ordinals), np.concatenate(values)
        for column, place in enumerate(places[layout]):
            pieces[layout.names[place]].append((where, joined[:, column].copy()))
    return {name: found for name, found in pieces.items() if found}


def _places(layout: ColumnLayout, test: Callable[[str], bool], reduction: str | None) -> list[int]:
    """Return the positions of the selected columns of a layout."""
    if reduction is None:
        fits = layout.reductions is None
    else:
        fits = layout.reductions is not None and reduction in layout.reductions
    return [place for place, name in enumerate(layout.names) if test(name)] if fits else []


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
