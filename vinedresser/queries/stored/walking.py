"""Walking through the committed records of a rank, reading what a query needs of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.objects import Span
from vinedresser.queries.numeric import Numeric
from vinedresser.queries.numpy_numeric import NumpyNumeric
from vinedresser.queries.observables import Moment
from vinedresser.queries.query import Query
from vinedresser.queries.stored.event import Offer, StoredEvent
from vinedresser.queries.stored.needs import StoredNeeds, stored_needs
from vinedresser.queries.stored.offers import Offers, RowOffer, sizes_of
from vinedresser.store.problems import Problems
from vinedresser.store.reading.reader import Run
from vinedresser.store.segments.segment import ContiguousRows, Segment
from vinedresser.store.step_record import MODES

__all__ = ["NUMBERS", "RankEvents", "needs_of"]

# Names that are numbers of a record itself.
NUMBERS = ("step", "step_seconds")
# Bytes of tensors of a segment that are read before its first record is evaluated; of more, each
# tensor is read when it is needed.
_AT_ONCE = 32 << 20
_TRAIN, _EVAL = MODES.index("train"), MODES.index("eval")


def needs_of(query: Query) -> StoredNeeds:
    """Return what a query reads, including what closes its windows."""
    found = stored_needs(query)
    if query.every.kind != "epoch":
        return found
    reductions = {"epoch": None, **found.reductions}
    return StoredNeeds(reductions, found.chooses, found.lazy)


@dataclass
class _Read:
    """A segment with what was read of it."""

    segment: Segment
    offers: list[Offer]
    matrices: dict[int, NDArray[np.float64] | CorruptData] = field(default_factory=dict)
    tensors: dict[tuple[str, int], NDArray[Any]] = field(default_factory=dict)

    def row(self, row: int, number: int) -> NDArray[np.float64]:
        """Return a row of a matrix.

        Raises:
            CorruptData: the matrix is damaged.
        """
        matrix = self.matrices[number]
        if isinstance(matrix, CorruptData):
            raise matrix
        rows = self.segment.record.columns[number].rows
        found: NDArray[np.float64] = matrix[row if rows is None else np.searchsorted(rows, row)]
        return found

    def tensor(self, row: int, name: str) -> NDArray[Any]:
        """Return a tensor of a record."""
        if (name, row) in self.tensors:
            return self.tensors[name, row]
        entry = self.segment.locate(name, row)
        if entry is None:
            raise CorruptData(f"{self.segment.record.segment}: {name} is missing")
        return self.segment.tensor(name, entry)


class _Plan(NamedTuple):
    """What is read of a segment before its first record is evaluated.

    Attributes:
        matrices: numbers of the matrices.
        pieces: names and rows of the tensors.
    """

    segment: Segment
    offers: list[RowOffer]
    matrices: list[int]
    pieces: list[tuple[str, ContiguousRows]]

    def spans(self) -> list[Span]:
        columns = self.segment.record.columns
        matrices = [self.segment.matrix_span(columns[number]) for number in self.matrices]
        return [*matrices, *(self.segment.rows_span(piece) for _, piece in self.pieces)]

    def read(self, contents: list[bytes | None], problems: Problems) -> _Read:
        """Return the segment with what was read.

        Args:
            contents: contents of `spans`.
        """
        offers = [Offer()] * len(self.segment)
        for rows, _, offer in self.offers:
            for row in rows.tolist():
                offers[row] = offer
        read = _Read(self.segment, offers)
        for number, content in zip(self.matrices, contents, strict=False):
            try:
                group = self.segment.record.columns[number]
                read.matrices[number] = self.segment.decode_matrix(group, content)
            except CorruptData as error:
                problems.note(str(error))
                read.matrices[number] = error
        for (name, piece), content in zip(self.pieces, contents[len(self.matrices) :], strict=True):
            for row, value in self.segment.decode_rows(name, piece, content, problems):
                read.tensors[name, row] = value
        return read


class RankEvents:
    """The events of one rank of a stored run, in the order in which they were captured."""

    def __init__(self, run: Run, query: Query, rank: int) -> None:
        self._run = run
        self._mode = MODES.index(query.every.mode)
        self._rank = rank
        self._needs = needs_of(query)
        self._sizes: dict[str, int] = {}
        self._offers = Offers(self._needs, NUMBERS, self._sizes)
        self._numeric: Numeric = NumpyNumeric(channels_last=run.info.framework == "keras")
        self._done = 0
        # Step and time of the last train step.
        self._last: tuple[int, float] | None = None

    def fresh(self) -> Iterator[StoredEvent]:
        """Yield the events of the segments that have been committed since the last call."""
        segments = self._run.segments(self._rank)[self._done :]
        self._done += len(segments)
        self._sizes.update(sizes_of(segments))
        found = [self._offers.of(segment) for segment in segments]
        for read in self._read(segments, found):
            yield from self._events(read)

    def _events(self, read: _Read) -> Iterator[StoredEvent]:
        modes, steps, times = (part.tolist() for part in read.segment.record.rows)
        for row, offer in enumerate(read.offers):
            mode, step, time = modes[row], steps[row], times[row]
            numbers = {"step": float(step)}
            if mode not in (_TRAIN, _EVAL):
                continue
            duration = self._duration(step, time) if mode == _TRAIN else None
            if duration is not None:
                numbers["step_seconds"] = duration
            elif "step_seconds" in offer.names:
                names = tuple(name for name in offer.names if name != "step_seconds")
                offer = replace(offer, names=names)  # noqa: PLW2901 (of this row)
            yield StoredEvent(
                moment=Moment(
                    "step" if mode == _TRAIN else "evaluation",
                    step,
                    MODES[mode],
                    self._rank,
                    time,
                ),
                numeric=self._numeric,
                offer=offer,
                numbers=numbers,
                row=partial(read.row, row),
                tensor=partial(read.tensor, row),
                sizes=self._sizes,
            )

    def _duration(self, step: int, time: float) -> float | None:
        """Return the seconds per step since the last train step; None for the first."""
        before, self._last = self._last, (step, time)
        if before is None or step <= before[0]:
            return None
        return (time - before[1]) / (step - before[0])

    def _read(self, segments: list[Segment], found: list[list[RowOffer]]) -> Iterator[_Read]:
        """Yield the segments with their matrices, and with their tensors unless these are large."""
        plans = [self._plan(one, offers) for one, offers in zip(segments, found, strict=True)]
        spans = (span for plan in plans for span in plan.spans())
        # The storage reads ahead.
        contents = self._run.storage.get_spans(spans)
        for plan in plans:
            yield plan.read([next(contents) for _ in plan.spans()], self._run.problem_log)

    def _plan(self, segment: Segment, offers: list[RowOffer]) -> _Plan:
        complete = [
            one._replace(offer=self._offers.complete(one.mode, one.offer)) for one in offers
        ]
        matrices: dict[int, None] = {}
        pieces: list[tuple[str, ContiguousRows]] = []
        for _, mode, offer in complete:
            places = [*offer.scalars.values(), *offer.statistics.values()]
            matrices.update(dict.fromkeys(number for number, _ in places))
            if mode == self._mode and not self._needs.lazy:
                pieces += self._pieces(segment, offer, pieces)
        spans = [segment.rows_span(piece) for _, piece in pieces]
        if sum(span.length for span in spans) > _AT_ONCE:
            pieces = []
        return _Plan(segment, complete, [*matrices], pieces)

    def _pieces(
        self, segment: Segment, offer: Offer, before: list[tuple[str, ContiguousRows]]
    ) -> list[tuple[str, ContiguousRows]]:
        known = {name for name, _ in before}
        return [
            (name, piece)
            for name in offer.tensors
            if name not in known
            for piece in segment.contiguous_rows(name, MODES[self._mode])
        ]
