"""One committed step, for rules and users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import UnknownTensor, did_you_mean
from vinedresser.store.index.layout import ColumnLayout
from vinedresser.store.reading.selection import Selector
from vinedresser.store.reductions import base_name, derived_name
from vinedresser.store.segments.matrix_parts import MatrixParts
from vinedresser.store.segments.segment import Segment, row_position
from vinedresser.store.step_record import MODES, Mode

__all__ = ["SegmentColumns", "Step"]


class SegmentColumns:
    """Scalars and statistics of one segment, read for many of its steps at once.

    Args:
        first: ordinal of its first record within the rank.
        selector: knows the members of each collection.
    """

    def __init__(self, segment: Segment, first: int, selector: Selector) -> None:
        self.segment = segment
        self.first = first
        self.selector = selector
        self._parts = MatrixParts(segment)

    def steps(self) -> Iterator[Step]:
        """Yield its steps in capture order."""
        return (Step(self, row) for row in range(len(self.segment)))

    def at(self, row: int, *, scalars: bool) -> Iterator[tuple[ColumnLayout, NDArray[np.float64]]]:
        """Yield each layout that has the row, with the row of its matrix.

        The row is float64 [names] for scalars and float64 [names, reductions] for statistics.

        Args:
            row: row of the segment.
            scalars: yield scalars rather than statistics.

        Raises:
            CorruptData: the stored bytes do not match their checksum.
        """
        for number, group in enumerate(self.segment.record.columns):
            if (group.layout.reductions is None) is not scalars:
                continue
            place = row_position(group, row)
            if place is None:
                continue
            yield group.layout, self._parts.row(number, place)


class Step:
    """Everything captured in one step of one mode on one rank; read on demand.

    Attributes:
        mode: "train", "eval" or "predict".
        step: the optimizer step; for an evaluation, the number of optimizer steps before it.
        rank: rank of the process that captured it.
        time: end of the step, seconds since the epoch.
        ordinal: position among the records of its rank, from 0.

    Args:
        row: row of its segment.
    """

    def __init__(self, columns: SegmentColumns, row: int) -> None:
        segment = columns.segment
        modes, steps, times = segment.record.rows
        self.mode: Mode = MODES[modes[row]]
        self.step = int(steps[row])
        self.rank = segment.record.rank
        self.time = float(times[row])
        self.ordinal = columns.first + row
        self._columns = columns
        self._row = row
        # Cached, because several rules ask for the same statistics.
        self._taken: dict[tuple[str, str], dict[str, float]] = {}

    def __repr__(self) -> str:
        return f"Step({self.mode} {self.step}, rank {self.rank})"

    @cached_property
    def scalars(self) -> Mapping[str, float]:
        """Scalars (losses, metrics) by name.

        Raises:
            CorruptData: the stored bytes do not match their checksum.
        """
        return {
            name: value
            for layout, values in self._columns.at(self._row, scalars=True)
            for name, value in zip(layout.names, values.tolist(), strict=True)
        }

    @cached_property
    def reductions(self) -> Mapping[str, Mapping[str, float]]:
        """Scalar statistics by tensor name and reduction.

        Raises:
            CorruptData: the stored bytes do not match their checksum.
        """
        return {
            name: dict(zip(layout.reductions or (), statistics, strict=True))
            for layout, values in self._columns.at(self._row, scalars=False)
            for name, statistics in zip(layout.names, values.tolist(), strict=True)
        }

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of the full tensors of this step, without vector statistics."""
        groups = self._columns.segment.record.named
        return tuple(
            name
            for group in groups
            if row_position(group, self._row) is not None
            for name in group.layout.names
            if base_name(name) is None
        )

    @property
    def measured_names(self) -> tuple[str, ...]:
        """Names of the tensors with scalar statistics of this step; no values are read."""
        return tuple(
            name
            for group in self._columns.segment.record.columns
            if group.layout.reductions is not None and row_position(group, self._row) is not None
            for name in group.layout.names
        )

    def tensors_of(self, collection: str) -> list[str]:
        """Return the names of the full tensors of this step in a collection."""
        member = self._columns.selector.members(collection)
        return [name for name in self.tensor_names if member(name)]

    def tensor(self, name: str) -> NDArray[Any]:
        """Read a full tensor: read-only, with bfloat16 and float8 as `ml_dtypes`.

        Raises:
            UnknownTensor: it was not captured in full at this step.
            CorruptData: the stored bytes do not match their checksum.
        """
        entry = self._columns.segment.locate(name, self._row)
        if entry is None:
            hint = did_you_mean(name, self.tensor_names)
            raise UnknownTensor(
                f"{name}: not captured in full at {self.mode} step {self.step}{hint}"
            )
        return self._columns.segment.tensor(name, entry)

    def scalars_of(self, collection: str) -> dict[str, float]:
        """Return the scalars of a collection, such as "losses".

        Raises:
            CorruptData: the stored bytes do not match their checksum.
        """
        found: dict[str, float] = {}
        for layout, values in self._columns.at(self._row, scalars=True):
            names, places = self._columns.selector.places(layout, collection)
            found.update(zip(names, values[places].tolist(), strict=True))
        return found

    def reduction_of(self, collection: str, reduction: str) -> Mapping[str, float]:
        """Return a scalar statistic of every tensor of a collection.

        Args:
            collection: name of the collection, such as "gradients".
            reduction: scalar reduction, such as "l2". Tensors without it are omitted.

        Raises:
            CorruptData: the stored bytes do not match their checksum.
        """
        key = (collection, reduction)
        if key not in self._taken:
            found = self._taken[key] = {}
            for layout, values in self._columns.at(self._row, scalars=False):
                if reduction in (layout.reductions or ()):
                    names, places = self._columns.selector.places(layout, collection)
                    third = (layout.reductions or ()).index(reduction)
                    found.update(zip(names, values[places, third].tolist(), strict=True))
        return self._taken[key]

    def vectors_of(self, collection: str, reduction: str) -> dict[str, NDArray[Any]]:
        """Return a vector statistic of every tensor of a collection; float64 [channels(, 66)].

        Args:
            collection: name of the collection, such as "activations".
            reduction: vector reduction, such as "channel_zero_share". Tensors without it are
                omitted.

        Raises:
            CorruptData: the stored bytes do not match their checksum.
        """
        member = self._columns.selector.members(collection)
        found = {}
        for group in self._columns.segment.record.named:
            if row_position(group, self._row) is None:
                continue
            for name in group.layout.names:
                base = base_name(name)
                if base and name == derived_name(base, reduction) and member(base):
                    found[base] = self.tensor(name)
        return found
