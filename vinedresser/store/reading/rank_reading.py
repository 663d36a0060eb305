"""Reading columns, or one full tensor, over all segments of a rank."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.objects import Span
from vinedresser.store.index.index_record import Rows
from vinedresser.store.index.layout import ColumnLayout
from vinedresser.store.problems import Problems
from vinedresser.store.reading.history import History
from vinedresser.store.reading.series import Column, Columns
from vinedresser.store.segments.segment import ContiguousRows, Segment
from vinedresser.store.step_record import MODES, Mode

__all__ = ["read_columns", "read_tensor"]

_Row = tuple[int, NDArray[Any]]

# Rows that are split by name at a time: few enough for the processor's cache.
_SPLIT_ROWS = 1024


class _Piece(NamedTuple):
    """Values of one name from the matrices of one layout.

    Attributes:
        ordinals: ordinals of the records within the rank, int64 [n], ascending.
        rows: these records; shared by all names of the layout.
        values: float64 [n].
    """

    ordinals: NDArray[np.int64]
    rows: Rows
    values: NDArray[np.float64]


def read_columns(
    history: History,
    problems: Problems,
    test: Callable[[str], bool],
    *,
    reduction: str | None,
    mode: Mode | None,
) -> Columns:
    """Read scalars, or one scalar statistic, of the names that pass a test.

    Corrupt data is skipped and added to the problems. Columns that were captured together share
    their steps, times and modes, which are read-only.

    Args:
        history: history of the rank.
        problems: collects corrupt data.
        test: selects names.
        reduction: name of the statistic; None for scalars.
        mode: only rows of this mode; None: all.
    """
    places = {layout: _places(layout, test, reduction) for layout in history.column_layouts}
    stacks = _stacks(history, problems, places, reduction, mode)
    pieces: dict[str, list[_Piece]] = {
        layout.names[place]: [] for layout in history.column_layouts for place in places[layout]
    }
    for layout, (ordinals, blocks) in stacks.items():
        where = np.concatenate(ordinals)
        modes, steps, times = history.rows
        rows = Rows(modes[where], steps[where], times[where])
        for part in rows:
            part.flags.writeable = False
        for place, values in zip(places[layout], _split(np.concatenate(blocks)), strict=True):
            pieces[layout.names[place]].append(_Piece(where, rows, values))
        blocks.clear()
    columns = (_column(name, found) for name, found in pieces.items() if found)
    return Columns(column for column in columns if len(column))


def _column(name: str, found: list[_Piece]) -> Column:
    """Return the column of a name that has pieces in one or several layouts."""
    if len(found) == 1:
        modes, steps, times = found[0].rows
        return Column(name, steps, found[0].values, times, modes)
    order = np.argsort(np.concatenate([piece.ordinals for piece in found]))
    values = np.concatenate([piece.values for piece in found])[order]
    modes, steps, times = (
        np.concatenate(parts)[order] for parts in zip(*(piece.rows for piece in found), strict=True)
    )
    return Column(name, steps, values, times, modes)


def _stacks(
    history: History,
    problems: Problems,
    places: Mapping[ColumnLayout, list[int]],
    reduction: str | None,
    mode: Mode | None,
) -> dict[ColumnLayout, tuple[list[NDArray[np.int64]], list[NDArray[np.float64]]]]:
    """Read the matrices: by layout, the ordinals and values, float64 [n, places], of each."""
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
        block, rows = matrix[:, places[group.layout]], segment.rows_of(group)
        if mode is not None:
            right = segment.record.rows.modes[rows] == MODES.index(mode)
            block, rows = (block, rows) if right.all() else (block[right], rows[right])
        ordinals, blocks = stacks[group.layout]
        ordinals.append(history.first(number) + rows)
        blocks.append(block)
    return stacks


def _split(matrix: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the columns of a matrix, float64 [n, names], as contiguous arrays of their own."""
    columns = [np.empty(len(matrix)) for _ in range(matrix.shape[1])]
    for first in range(0, len(matrix), _SPLIT_ROWS):
        part = matrix[first : first + _SPLIT_ROWS]
        for column, values in zip(columns, part.T, strict=True):
            column[first : first + len(part)] = values
    return columns


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
