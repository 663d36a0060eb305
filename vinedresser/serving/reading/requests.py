"""Requests that were read from a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.columns.values import joined

__all__ = ["Requests", "concatenated"]


@dataclass(frozen=True, eq=False)
class Requests:
    """Recorded requests, in the order of their times.

    Attributes:
        ids: id of each.
        times: arrival of each, seconds since the epoch; float64 [requests].
        probabilities: probability with which each was recorded; float64 [requests].
        columns: columns that describe them, by name; see `describe`. A request without a column has
            NaN or None there.
        labels: label of each: a number, text, boolean, or None while it is unknown.
    """

    ids: tuple[str, ...]
    times: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    columns: dict[str, NDArray[Any]]
    labels: tuple[Any, ...]

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.ids)

    def some(self, rows: NDArray[np.int64]) -> Requests:
        """Return some of the requests, by position."""
        return Requests(
            tuple(self.ids[row] for row in rows),
            self.times[rows],
            self.probabilities[rows],
            {name: values[rows] for name, values in self.columns.items()},
            tuple(self.labels[row] for row in rows),
        )


def concatenated(pieces: Sequence[Requests]) -> Requests:
    """Return requests of several reads as one, in the given order."""
    counts = [len(piece) for piece in pieces]
    names = dict.fromkeys(name for piece in pieces for name in piece.columns)
    nothing = np.zeros(0)
    return Requests(
        tuple(one for piece in pieces for one in piece.ids),
        np.concatenate([nothing, *(piece.times for piece in pieces)]),
        np.concatenate([nothing, *(piece.probabilities for piece in pieces)]),
        {name: joined([piece.columns.get(name) for piece in pieces], counts) for name in names},
        tuple(label for piece in pieces for label in piece.labels),
    )
