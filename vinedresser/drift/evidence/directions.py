"""Drift of several columns together, such as a correlation: along directions learned from windows.

A direction in which recent windows differ from the rows before them is learned, and then tested on
later windows only, against rows of the baseline that nothing was learned from. So the urn holds for
the values along it. Each direction that is learned gets a share of the budget.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.bins import Edges, counted
from vinedresser.drift.evidence.changes import share_of
from vinedresser.drift.evidence.likelihood import Seen, Urn, array_of, log_ratio
from vinedresser.drift.evidence.streams import Spacing, WholeCycles

__all__ = ["Directions", "Moments"]

_MOST_DIMENSIONS = 64
# Rows to learn from, at least, and per dimension.
_ROWS, _ROWS_PER_DIMENSION = 400, 6
# Rows before these to compare with, at most, in multiples of the rows to learn from.
_MOST_BEFORE = 5
# Evidence in nats that a direction has to gain with so many rows, or it is replaced.
_PROMISING = 1.0
# Values count up to so many standard deviations, so that no single one decides.
_MOST_DEVIATIONS = 5.0
_RIDGE = 0.05
_PER_EPOCH = 2


class Moments:
    """Number, sum and sum of products of rows.

    Args:
        dimensions: number of columns.
    """

    def __init__(self, dimensions: int) -> None:
        self.rows = 0.0
        self._sum = np.zeros(dimensions)
        self._products = np.zeros((dimensions, dimensions))

    def add(self, rows: NDArray[np.float64]) -> None:
        """Add rows, float64 [rows, dimensions]."""
        self.rows += len(rows)
        self._sum += rows.sum(0)
        self._products += rows.T @ rows

    def copy(self) -> Moments:
        """Return the same moments, which later rows do not change."""
        same = Moments(len(self._sum))
        same.absorb(self)
        return same

    def absorb(self, other: Moments) -> None:
        """Add the rows of others."""
        self.rows += other.rows
        self._sum += other._sum
        self._products += other._products

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean row, float64 [dimensions]."""
        return self._sum / self.rows

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance, float64 [dimensions, dimensions], positive definite by a small ridge."""
        mean = self.mean
        found = self._products / self.rows - np.outer(mean, mean)
        return np.asarray(found + _RIDGE * np.eye(len(mean)))

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "rows": self.rows,
            "sum": self._sum.tolist(),
            "products": self._products.tolist(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many dimensions.
        """
        self.rows = float(state["rows"])
        self._sum = array_of(state, "sum", self._sum.shape)
        self._products = array_of(state, "products", self._products.shape)


class Directions:
    """Evidence of drift along learned directions.

    Args:
        fitted: float64 [rows, dimensions], rows of the baseline to learn from.
        held_out: float64 [rows, dimensions], rows of the baseline to compare with.
        seed: of the order of equal values.
        phases: int64 [rows] of the fitted rows, and of those held out; of each there is at least
            one row. None: there is a single one.
        whole: rows of a cycle of which only whole ones are compared; 0.0: each window is.
    """

    def __init__(
        self,
        fitted: NDArray[np.float64],
        held_out: NDArray[np.float64],
        seed: int,
        phases: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
        whole: float = 0.0,
    ) -> None:
        self._whole = whole
        at = phases or (np.zeros(len(fitted), np.int64), np.zeros(len(held_out), np.int64))
        # A cycle is no drift, so that rows are compared with the middle of their phase.
        scales = [_scales(fitted[at[0] == one]) for one in range(int(at[0].max(initial=0)) + 1)]
        self._centres = np.array([scale[0] for scale in scales])
        self._scale = _scales(fitted - self._centres[at[0]])[1]
        self._project = np.eye(fitted.shape[1])
        if fitted.shape[1] > _MOST_DIMENSIONS:
            known = self._mapped(fitted, at[0])
            axes = np.linalg.svd(known - known.mean(0), full_matrices=False)[2]
            self._project = axes[:_MOST_DIMENSIONS].T
        dimensions = self._project.shape[1]
        self._held_out, self._held_phase, self._seed = self._mapped(held_out, at[1]), at[1], seed
        self._before, self._recent = Moments(dimensions), Moments(dimensions)
        self._before.add(self._mapped(fitted, at[0]))
        self.tested = Moments(dimensions)
        """Moments of the rows that the present directions were tested on."""
        self.compared = Moments(dimensions)
        """Moments of the rows before those that the present directions were learned from."""
        self.epoch = -1
        """Number of the directions that are tested now, from 0; -1: none yet."""
        self.since = 0
        """Index of the first window from which the present directions were learned."""
        self._windows = self._recent_from = 0
        self._axes, self._best = np.empty((dimensions, 0)), 0.0
        self._edges, self._urn, self._begun = self._compared(0)
        self._spacing, self._cycles, self._pending = self._begun_anew(0)

    @property
    def inner_axes(self) -> NDArray[np.float64]:
        """Directions that are tested now, in the dimensions of the moments."""
        return self._axes

    @property
    def axes(self) -> NDArray[np.float64]:
        """Directions that are tested now, float64 [columns, directions], per standard deviation."""
        return np.asarray(self._project @ self._axes)

    @property
    def share(self) -> float:
        """Share of the budget that each of the present directions has."""
        return share_of(self.epoch) / _PER_EPOCH if self.epoch >= 0 else 0.0

    def update(
        self,
        rows: NDArray[np.float64],
        ties: NDArray[np.float64],
        distance: int,
        phase: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float64]:
        """Add a window.

        Args:
            rows: float64 [rows, columns]; NaN is missing.
            ties: float64 [rows, 2], uniform in [0, 1).
            distance: smallest distance of rows that are used.
            phase: int64 [rows], phase of each row in a cycle; None: there is a single one.

        Returns:
            The log of the likelihood ratio of each direction, float64 [directions], in nats; a
            ratio reaches 1 / p with a probability of p at most.
        """
        phase = np.zeros(len(rows), np.int64) if phase is None else phase
        mapped = self._mapped(rows, phase)
        ratios = np.empty(0)
        if self.epoch >= 0:
            bins = self._edges.bins(mapped @ self._axes, ties, phase)
            phases = self._edges.gaps.shape[1]
            total = self._urn.total if phases > 1 else None
            used = self._spacing.chosen(bins, distance, phase=phase, total=total)
            end = len(rows) if self._cycles is None else self._cycles.completed(len(rows))
            parts = [
                counted(bins[part], used[part], phase[part], phases)
                for part in (slice(end), slice(end, None))
            ]
            self._pending += parts[0]
            if end:
                self._urn.add(self._pending)
                self._pending = np.zeros_like(self._pending)
            self._pending += parts[1]
            ratios = log_ratio(self._begun, self._urn.seen)
            self.tested.add(mapped)
        self._recent.add(mapped)
        self._windows += 1
        enough = max(_ROWS, _ROWS_PER_DIMENSION * mapped.shape[1])
        if self._whole:
            enough = math.ceil(math.ceil(enough / self._whole) * self._whole)
        if self._recent.rows >= enough:
            self._learn(float(ratios.max(initial=0.0)), enough)
        return ratios

    def _learn(self, evidence: float, rows: int) -> None:
        """Keep the present directions if their evidence has grown, or learn others.

        Args:
            evidence: of the better one, in nats.
            rows: number of rows to learn from.
        """
        if evidence >= self._best + _PROMISING:
            self._best = evidence
        else:
            self.compared = self._before.copy()
            self._begin(_differences(self._before, self._recent))
            self.since = self._recent_from
            # Not for ever: rows after a drift would hide it.
            if self._before.rows < _MOST_BEFORE * rows:
                self._before.absorb(self._recent)
        self._recent, self._recent_from = Moments(len(self._axes)), self._windows

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        tested = {}
        if self.epoch >= 0:
            tested = {
                "axes": self._axes.tolist(),
                "best": self._best,
                "urn": self._urn.state(),
                "spacing": self._spacing.state(),
                "tested": self.tested.state(),
                "compared": self.compared.state(),
                "pending": self._pending.astype(int).tolist(),
                "cycle": 0 if self._cycles is None else self._cycles.state(),
            }
        moments = {"before": self._before.state(), "recent": self._recent.state()}
        windows = {"windows": self._windows, "since": self.since, "recent_from": self._recent_from}
        return {"epoch": self.epoch, **windows, **moments, **tested}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many dimensions.
        """
        self._before.resume(state["before"])
        self._recent.resume(state["recent"])
        self._windows, self.since = int(state["windows"]), int(state["since"])
        self._recent_from = int(state["recent_from"])
        if int(state["epoch"]) >= 0:
            self.epoch = int(state["epoch"]) - 1
            self._begin(array_of(state, "axes", (self._project.shape[1], _PER_EPOCH)))
            self._best = float(state["best"])
            self._urn.resume(state["urn"])
            self._spacing.resume(state["spacing"])
            self.tested.resume(state["tested"])
            self.compared.resume(state["compared"])
            self._pending = array_of(state, "pending", self._pending.shape)
            if self._cycles is not None:
                self._cycles.resume(state["cycle"])

    def _begin(self, axes: NDArray[np.float64]) -> None:
        """Test other directions from the next window on."""
        self.epoch += 1
        self._axes, self._best = axes, 0.0
        self._edges, self._urn, self._begun = self._compared(self.epoch)
        self.tested = Moments(len(self._axes))
        self._spacing, self._cycles, self._pending = self._begun_anew(_PER_EPOCH)

    def _begun_anew(
        self, directions: int
    ) -> tuple[Spacing, WholeCycles | None, NDArray[np.float64]]:
        """Return what chooses rows, what ends cycles, and counts of a cycle to come."""
        least = np.ones(directions, np.int64)
        spacing = Spacing(least, max(directions, 1), whole=self._whole)
        cycles = WholeCycles(self._whole) if self._whole else None
        return spacing, cycles, np.zeros_like(self._edges.gaps)

    def _compared(self, seed: int) -> tuple[Edges, Urn, Seen]:
        """Return what rows are compared with along the present directions."""
        values = self._held_out @ self._axes
        ties = np.random.default_rng([self._seed, seed]).random(values.shape)
        edges = Edges.of(values, ties, self._held_phase)
        urn = Urn(edges.gaps)
        return edges, urn, urn.seen

    def _mapped(self, rows: NDArray[np.float64], phase: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return rows as float64 [rows, dimensions]; missing values are at the centre."""
        # Of values beyond all bounds, only that they are matters.
        with np.errstate(over="ignore"):
            deviations = (rows - self._centres[phase]) / self._scale
        known = np.where(np.isnan(deviations), 0.0, deviations)
        return np.asarray(known.clip(-_MOST_DEVIATIONS, _MOST_DEVIATIONS) @ self._project)


def _differences(before: Moments, recent: Moments) -> NDArray[np.float64]:
    """Return directions in which recent rows differ the most, float64 [dimensions, 2].

    The first one is of the means (Fisher's linear discriminant), the second one of the variances.
    """
    earlier, later = before.covariance, recent.covariance
    shift = np.linalg.solve(earlier + later, recent.mean - before.mean)
    root = np.linalg.inv(np.linalg.cholesky(earlier))
    ratios, vectors = np.linalg.eigh(root @ later @ root.T)
    stretch = root.T @ vectors[:, np.argmax(abs(np.log(np.maximum(ratios, 1e-9))))]
    found = np.column_stack([shift, stretch])
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=0), 1e-300))


def _scales(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the median and the scale of each column, from the quartiles."""
    quartiles = np.zeros((3, rows.shape[1]))
    for column, values in enumerate(rows.T):
        if (known := values[np.isfinite(values)]).size:
            quartiles[:, column] = np.quantile(known, [0.25, 0.5, 0.75])
            # Of columns that are mostly constant, all values count.
            if quartiles[0, column] == quartiles[2, column] and known.std() > 0:
                quartiles[[0, 2], column] = quartiles[1, column] + known.std() * np.array([-1, 1])
    scale = (quartiles[2] - quartiles[0]) / 1.349
    return quartiles[1], np.where(scale > 0, scale, 1.0)
