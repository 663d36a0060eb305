"""Drift of several columns together, such as a correlation: along directions learned from windows.

A direction in which recent windows differ from the rows before them is learned, and then tested on
later windows only, against rows of the baseline that nothing was learned from. So the urn holds for
the values along it. Each direction that is learned gets a share of the budget.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.bins import Edges, counted
from vinedresser.drift.evidence.changes import array_of, share_of
from vinedresser.drift.evidence.likelihood import log_ratio, urn_before
from vinedresser.drift.evidence.streams import Spacing

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
    """

    def __init__(
        self, fitted: NDArray[np.float64], held_out: NDArray[np.float64], seed: int
    ) -> None:
        self._centre, self._scale = _scales(fitted)
        self._project = np.eye(fitted.shape[1])
        if fitted.shape[1] > _MOST_DIMENSIONS:
            known = self._mapped(fitted)
            axes = np.linalg.svd(known - known.mean(0), full_matrices=False)[2]
            self._project = axes[:_MOST_DIMENSIONS].T
        dimensions = self._project.shape[1]
        self._held_out, self._seed = self._mapped(held_out), seed
        self._before, self._recent = Moments(dimensions), Moments(dimensions)
        self._before.add(self._mapped(fitted))
        self.epoch = -1
        """Number of the directions that are tested now, from 0; -1: none yet."""
        self.since = 0
        """Index of the first window from which the present directions were learned."""
        self._windows = self._recent_from = 0
        self._axes, self._best = np.empty((dimensions, 0)), 0.0
        self._edges = Edges.of(np.empty((len(self._held_out), 0)), np.empty((len(held_out), 0)))
        self._urn, self._total = urn_before(self._edges.gaps), self._edges.gaps
        self._spacing = Spacing(np.ones(0, np.int64), 1)

    @property
    def axes(self) -> NDArray[np.float64]:
        """Directions that are tested now, float64 [columns, directions], per standard deviation."""
        return np.asarray(self._project @ self._axes)

    @property
    def share(self) -> float:
        """Share of the budget that each of the present directions has."""
        return share_of(self.epoch) / _PER_EPOCH if self.epoch >= 0 else 0.0

    def update(
        self, rows: NDArray[np.float64], ties: NDArray[np.float64], distance: int
    ) -> NDArray[np.float64]:
        """Add a window.

        Args:
            rows: float64 [rows, columns]; NaN is missing.
            ties: float64 [rows, 2], uniform in [0, 1).
            distance: smallest distance of rows that are used.

        Returns:
            The log of the likelihood ratio of each direction, float64 [directions], in nats; a
            ratio reaches 1 / p with a probability of p at most.
        """
        mapped = self._mapped(rows)
        ratios = np.empty(0)
        if self.epoch >= 0:
            bins = self._edges.bins(mapped @ self._axes, ties)
            used = self._spacing.chosen(bins, distance)
            self._total += counted(bins, used)
            ratios = log_ratio(self._urn, self._total)
        self._recent.add(mapped)
        self._windows += 1
        if self._recent.rows >= (enough := max(_ROWS, _ROWS_PER_DIMENSION * mapped.shape[1])):
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
                "total": self._total.astype(int).tolist(),
                "spacing": self._spacing.state(),
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
            self._total = array_of(state, "total", self._total.shape)
            self._spacing.resume(state["spacing"])

    def _begin(self, axes: NDArray[np.float64]) -> None:
        """Test other directions from the next window on."""
        self.epoch += 1
        self._axes, self._best = axes, 0.0
        values = self._held_out @ axes
        ties = np.random.default_rng([self._seed, self.epoch]).random(values.shape)
        self._edges = Edges.of(values, ties)
        self._urn = urn_before(self._edges.gaps)
        self._total = self._edges.gaps.copy()
        self._spacing = Spacing(np.ones(_PER_EPOCH, np.int64), _PER_EPOCH)

    def _mapped(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows as float64 [rows, dimensions]; missing values are at the centre."""
        deviations = (rows - self._centre) / self._scale
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
