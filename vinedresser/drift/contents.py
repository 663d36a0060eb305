"""What a baseline consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.columns import Kind
from vinedresser.drift.cycle import Cycle
from vinedresser.drift.encoders import Encoder
from vinedresser.drift.evidence.bins import Edges, told_by_values
from vinedresser.drift.evidence.dependence import TOO_FAR, correlations_shape

__all__ = ["Column", "Contents", "Correctness"]

# Labels of a baseline that would show their dependence if no two were equal. If half of them are
# wrong, it takes 1,386, of a tenth 2,310, and of 2 % 4,949. Of baselines in sessions of 100, about
# 1 % do not show it then.
_LABELS = 1200


@dataclass(frozen=True)
class Column:
    """A column of a baseline.

    Args:
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


@dataclass(frozen=True)
class Correctness:
    """What successive rows of a baseline show of whether predictions are correct.

    Args:
        labels: number of rows with a label that were in time order; 0: of no dependence is known.
        distance: number of these between nearly independent ones.
        usual: float64 [scores, 1, spans], correlations of `outer_bins`; see `Dependence.usual`.
    """

    labels: int
    distance: int
    usual: NDArray[np.float64]

    @classmethod
    def unknown(cls) -> Correctness:
        """Return what rows in no order show."""
        return cls(0, 1, np.zeros(correlations_shape(1)))


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a baseline consists of.

    Args:
        sample: a bounded sample of the rows, in random order, by column; see `read_column`.
        encoders: of each column, made from the first half of the sample.
        edges: of the streams of the columns that are monitored.
        correct: edges of the stream of whether predictions were correct; None if unknown.
        accuracy: share of correct predictions; NaN if unknown.
        correctness: how far it depends on each other whether predictions are correct.
        seed: of all random choices, also those of monitors.
        cycle: of the requests; None if there is none.
        phase: int64 [rows], phase in the cycle of each row of the sample.
        usual: correlations of the streams in the order of the rows; see `Dependence.usual`.
        in_time_order: whether the rows were successive requests, so that `usual` and the distances
            of the columns show how far requests depend on each other; None: it was not noted.
    """

    columns: tuple[Column, ...]
    sample: dict[str, NDArray[Any]]
    encoders: dict[str, Encoder]
    edges: Edges
    correct: Edges | None
    accuracy: float
    correctness: Correctness
    seed: int
    cycle: Cycle | None
    phase: NDArray[np.int64]
    usual: NDArray[np.float64]
    in_time_order: bool | None

    @property
    def streams(self) -> list[tuple[Column, str]]:
        """Column and name of each stream of values that is monitored."""
        return [
            (column, stream)
            for column in self.columns
            if column.monitored
            for stream in self.encoders[column.name].streams
        ]

    @property
    def told(self) -> NDArray[np.float64] | None:
        """What `told_by_values` says of each stream; None if the rows are in time order."""
        if self.in_time_order:
            return None
        monitored = [column.name for column in self.columns if column.monitored]
        parts = [self.encoders[one].encode(self.sample[one]) for one in monitored]
        return np.concatenate([told_by_values(part) for part in parts])

    @property
    def told_by_labels(self) -> NDArray[np.float64] | None:
        """The same of whether predictions are correct; None if the baseline shows enough.

        Of `outer_bins`, no part is chance. But the fewer labels differ from the others, the more
        are needed: of requests in proportion, and of a baseline, in which no change has to be told
        from dependence, by the square root. What the baseline shows is not needed again.
        """
        wrong = 1 - self.accuracy
        told = np.sqrt([1 - wrong**3 - self.accuracy**3])
        left = 1 - told * self.correctness.labels / _LABELS
        return None if left <= 0 else told / np.sqrt(left)
