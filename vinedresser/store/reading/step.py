"""One committed step, as a rule or a user sees it."""

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
        segment: the segment.
        first: the place of its first record among all of its rank.
        selector: tells the members of a collection.
    """

    def __init__(self, segment: Segment, first: int, selector: Selector) -> None:
        self.segment = segment
        self.first = first
        self.selector = selector
        self._parts = MatrixParts(segment)

    def steps(self) -> Iterator[Step]:
        """Yield its steps in the order in which they were captured."""
        return (Step(self, row) for row in range(len(self.segment)))

    def at(self, row: int, *, scalars: bool) -> Iterator[tuple[ColumnLayout, NDArray[np.float64]]]:
        """Yield the layouts that have the row, with its part of the matrix: [names(, reductions)].

        Args:
            row: of the segment.
            scalars: whether scalars are asked for, or statistics.

        Raises:
            CorruptData: the bytes on disk do not match their checksum.
        """
        for number, group in enumerate(self.segment.record.columns):
            if (group.layout.reductions is None) is not scalars:
                continue
            place = row_position(group, row)
            if place is None:
                continue
            yield group.layout, self._parts.row(number, place)


class Step:
    """Everything captured in one step of one mode on one rank; read from the store when asked for.

    Attributes:
        mode: "train", "eval" or "predict".
        step: the optimizer step; of an evaluation, the optimizer steps done before it.
        rank: the process that captured it.
        time: when it ended, seconds since the epoch.
        ordinal: its place among the records of its rank, from 0.

    Args:
        columns: of its segment.
        row: its place in the segment.
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
        # Statistics that were asked for: several rules ask for the same.
        self._taken: dict[tuple[str, str], dict[str, float]] = {}

    def __repr__(self) -> str:
        return f"Step({self.mode} {self.step}, rank {self.rank})"

    @cached_property
    def scalars(self) -> Mapping[str, float]:
        """Scalars (losses, metrics) by name.

        Raises:
            CorruptData: the bytes on disk do not match their checksum.
        """
        return {
            name: value
            for layout, values in self._columns.at(self._row, scalars=True)
            for name, value in zip(layout.names, values.tolist(), strict=True)
        }

    @cached_property
    def reductions(self) -> Mapping[str, Mapping[str, float]]:
        """For a tensor's name, its statistics by the reduction's name.

        Raises:
            CorruptData: the bytes on disk do not match their checksum.
        """
        return {
            name: dict(zip(layout.reductions or (), statistics, strict=True))
            for layout, values in self._columns.at(self._row, scalars=False)
            for name, statistics in zip(layout.names, values.tolist(), strict=True)
        }

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of the full tensors of this step; statistics such as histograms are none."""
        groups = self._columns.segment.record.named
        return tuple(
            name
            for group in groups
            if row_position(group, self._row) is not None
            for name in group.layout.names
            if base_name(name) is None
        )

    def tensors_of(self, collection: str) -> list[str]:
        """Return the names of those full tensors of this step that are in a collection."""
        member = self._columns.selector.members(collection)
        return [name for name in self.tensor_names if member(name)]

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a full tensor, read now; read-only, bfloat16 and float8 as `ml_dtypes`.

        Raises:
            UnknownTensor: it was not captured in full at this step.
            CorruptData: the bytes on disk do not match their checksum.
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
            CorruptData: the bytes on disk do not match their checksum.
        """
        found: dict[str, float] = {}
        for layout, values in self._columns.at(self._row, scalars=True):
            names, places = self._columns.selector.places(layout, collection)
            found.update(zip(names, values[places].tolist(), strict=True))
        return found

    def reduction_of(self, collection: str, reduction: str) -> Mapping[str, float]:
        """Return one statistic of every tensor of a collection.

        Args:
            collection: such as "gradients".
            reduction: such as "l2". Tensors for which it was not taken are left out.

        Raises:
            CorruptData: the bytes on disk do not match their checksum.
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
        """Return a statistic of several numbers of every tensor of a collection.

        Args:
            collection: such as "activations".
            reduction: such as "channel_zero_share". Tensors for which it was not taken are left
                out.

        Raises:
            CorruptData: the bytes on disk do not match their checksum.
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
