"""Evidence of drift in several streams of values, from rows that are nearly independent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.bins import Edges, counted
from vinedresser.drift.evidence.changes import ChangeEvidence, array_of
from vinedresser.drift.evidence.dependence import SHARED, TOO_FAR, Dependence

__all__ = ["Spacing", "Streams"]

# Rows without which nothing is known about their dependence.
_LEAST = 100


class Spacing:
    """Chooses rows that are nearly independent, in each of several streams.

    Args:
        least: int64 [streams], smallest distance between chosen rows, always.
        together: number of successive streams that are columns of the same rows. What most of them
            show of the dependence of the rows holds for all.
    """

    def __init__(self, least: NDArray[np.int64], together: int) -> None:
        self._least, self._together = least, together
        self._dependence = Dependence(len(least))
        # Rows since the last one that was chosen.
        self._since = np.full(len(least), TOO_FAR)
        self.distances = least.copy()
        """int64 [streams], distance between chosen rows now; `TOO_FAR` where none are."""
        self.shared = np.ones(len(least) // max(together, 1), np.int64)
        """int64 [groups], distance that the streams of a group have in common."""

    @property
    def waiting(self) -> bool:
        """Whether there have been too few rows to choose any."""
        return self._dependence.rows < _LEAST

    def chosen(self, bins: NDArray[np.uint8], least: int = 1) -> NDArray[np.bool_]:
        """Return which rows are nearly independent of each other and of those chosen before.

        Args:
            bins: uint8 [rows, streams], successive rows.
            least: smallest distance between chosen rows in this window.

        Returns:
            bool [rows, streams].
        """
        found = self._dependence.update(bins).reshape(-1, self._together)
        shared = np.sort(found, axis=1)[:, math.ceil(SHARED * (self._together - 1)), None]
        self.shared = shared[:, 0].astype(np.int64)
        self.distances = np.maximum(np.maximum(found, shared).ravel(), self._least).clip(least)
        rows = np.arange(len(bins))[:, None]
        first = np.maximum(self.distances - self._since - 1, 0)
        used = (rows >= first) & ((rows - first) % self.distances == 0)
        used &= (self.distances < TOO_FAR) & (not self.waiting)
        last = np.where(used, rows, -1).max(0, initial=-1)
        self._since = np.where(last < 0, self._since + len(bins), len(bins) - 1 - last)
        self._since = np.minimum(self._since, TOO_FAR)
        return np.asarray(used)

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "dependence": self._dependence.state(),
            "since": self._since.tolist(),
            "distances": self.distances.tolist(),
            "shared": self.shared.tolist(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many streams.
        """
        shape = self._least.shape
        self._dependence.resume(state["dependence"])
        self._since = array_of(state, "since", shape).astype(np.int64)
        self.distances = array_of(state, "distances", shape).astype(np.int64)
        self.shared = array_of(state, "shared", self.shared.shape).astype(np.int64)


class Streams:
    """Evidence of drift in several streams.

    Args:
        edges: bins of the streams.
        distances: int64 [streams], smallest distance between rows that are used.
        together: see `Spacing`.
    """

    def __init__(self, edges: Edges, distances: NDArray[np.int64], together: int) -> None:
        self._edges = edges
        self.spacing = Spacing(distances, together)
        self.changes = ChangeEvidence(edges.gaps)

    def update(
        self,
        values: NDArray[np.float64],
        ties: NDArray[np.float64],
        present: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Add a window.

        Args:
            values: float64 [rows, streams], successive rows; NaN is missing.
            ties: float64 [rows, streams], uniform in [0, 1).
            present: bool [streams], streams that have values in this window; None: all.

        Returns:
            The log of the wealth of each stream, float64 [streams], in nats.
        """
        bins = self._edges.bins(values, ties)
        used = self.spacing.chosen(bins)
        if present is not None:
            used &= present
        return self.changes.update(counted(bins, used))

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {"spacing": self.spacing.state(), "changes": self.changes.state()}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many streams.
        """
        self.spacing.resume(state["spacing"])
        self.changes.resume(state["changes"])
