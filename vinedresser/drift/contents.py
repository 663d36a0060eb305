"""What a baseline consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from vinedresser.drift.columns import Kind
from vinedresser.drift.encoders import Encoder
from vinedresser.drift.evidence.bins import Edges
from vinedresser.drift.evidence.dependence import TOO_FAR

__all__ = ["Column", "Contents"]


@dataclass(frozen=True)
class Column:
    """A column of a baseline.

    Args:
        name: its name.
        kind: what it contains.
        width: dimensions of an embedding, otherwise 1.
        distance: number of rows of the baseline between nearly independent ones.
    """

    name: str
    kind: Kind
    width: int
    distance: int

    @property
    def monitored(self) -> bool:
        """Whether rows of the baseline are independent at some distance."""
        return self.distance < TOO_FAR


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a baseline consists of.

    Args:
        columns: the columns.
        sample: a bounded sample of the rows, in random order, by column; see `read_column`.
        encoders: of each column, made from the first half of the sample.
        edges: of the streams of the columns that are monitored.
        correct: edges of the stream of whether predictions were correct; None if unknown.
        accuracy: share of correct predictions; NaN if unknown.
        seed: of all random choices, also those of monitors.
    """

    columns: tuple[Column, ...]
    sample: dict[str, NDArray[Any]]
    encoders: dict[str, Encoder]
    edges: Edges
    correct: Edges | None
    accuracy: float
    seed: int

    @property
    def streams(self) -> list[tuple[Column, str]]:
        """Column and name of each stream of values that is monitored."""
        return [
            (one, stream)
            for one in self.columns
            if one.monitored
            for stream in self.encoders[one.name].streams
        ]
