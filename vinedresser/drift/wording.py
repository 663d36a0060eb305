"""How far a feature is from the baseline, in numbers and in words."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.contents import Column
from vinedresser.drift.distances import (
    SortedSample,
    kolmogorov_smirnov,
    population_stability,
    wasserstein,
)

__all__ = ["Change", "Reference", "change_together"]


@dataclass(frozen=True)
class Change:
    """The largest change of a feature; see `FeatureDrift` for the fields."""

    change: str
    how_far: float
    unit: str
    baseline: float
    window: float
    text: str
    reported: dict[str, float] = field(default_factory=dict)


class Reference:
    """The sample of a column that windows are compared with.

    Args:
        column: the column.
        sample: its values in the baseline; see `read_column` for arrays of each kind.
    """

    def __init__(self, column: Column, sample: NDArray[Any]) -> None:
        self._column = column
        missing = _missing(column, sample)
        self._missing, self._rows = float(missing.mean()), len(sample)
        known = sample[~missing]
        self._known = len(known)
        if column.kind == "number" and len(known):
            self._sorted = SortedSample(known)
        elif column.kind == "category":
            self._counts = Counter(known.tolist())
        elif len(known):
            self._centre = known.mean(0)
            self._distance = float(np.linalg.norm(known - self._centre, axis=1).mean())

    def change(self, values: NDArray[Any]) -> Change:
        """Return the largest change of the column.

        Args:
            values: of a window, at least one.
        """
        missing = _missing(self._column, values)
        share, known = float(missing.mean()), values[~missing]
        name = self._column.name
        text = f"{name}: missing in {share:.1%} of the rows, {self._missing:.1%} in the baseline"
        far = abs(share - self._missing)
        gone = Change("missing", far, "share of rows", self._missing, share, text)
        if len(known) == 0 or self._known == 0:
            return gone
        compare = {
            "number": self._of_numbers,
            "category": self._of_categories,
            "embedding": self._of_embeddings,
        }[self._column.kind]
        surprise, change = compare(known)
        errors = _share_errors(self._missing, self._rows, share, len(values))
        return gone if errors > surprise else change

    def _of_numbers(self, values: NDArray[Any]) -> tuple[float, Change]:
        """Return the largest change of numbers, and how many standard errors it is."""
        name, before, after = self._column.name, self._sorted, SortedSample(values)
        middle, spread = before.quantile(0.5), before.spread
        reported = {
            "ks": kolmogorov_smirnov(before, after),
            "psi": population_stability(before.decile_shares(before), before.decile_shares(after)),
        }
        if spread == 0:
            other = float((after.values != middle).mean())
            text = f"{name}: {other:.1%} of the values are not {middle:.4g}, as all in the baseline"
            change = Change("constant", other, "share of rows", 0.0, other, text, reported)
            return _share_errors(0.0, self._known, other, len(values)), change
        reported["wasserstein"] = wasserstein(before, after) / spread
        shift, stretch = (after.quantile(0.5) - middle) / spread, after.spread / spread
        # In standard errors of a normal distribution.
        root = math.sqrt(1 / self._known + 1 / len(values))
        errors = {
            "median": abs(shift) / (1.2533 * root),
            "spread": abs(math.log(max(stretch, 1e-9))) / (1.17 * root),
            "distribution": reported["ks"] / (0.87 * root),
        }
        most = max(errors, key=errors.__getitem__)
        if most == "median":
            far, unit, was, now = shift, "standard deviations", middle, after.quantile(0.5)
            way = "higher" if shift > 0 else "lower"
            words = f"({abs(shift):.2f} standard deviations {way})"
        elif most == "spread":
            far, unit, was, now = stretch, "times", spread, after.spread
            words = f"({stretch:.2f} times)"
        else:
            far, unit, was, now = reported["ks"], "share of rows", 0.0, reported["ks"]
            text = f"{name}: another distribution (largest difference of shares {far:.1%})"
            return errors[most], Change(most, far, unit, was, now, text, reported)
        text = f"{name}: {most} {now:.4g}, {was:.4g} in the baseline {words}"
        return errors[most], Change(most, far, unit, was, now, text, reported)

    def _of_categories(self, values: NDArray[Any]) -> tuple[float, Change]:
        """Return the largest change of the shares of categories, and its standard errors."""
        name, counts = self._column.name, Counter(values.tolist())
        shares = {
            one: (self._counts[one] / self._known, counts[one] / len(values))
            for one in sorted({*self._counts, *counts})
        }
        errors = {
            one: _share_errors(p, self._known, q, len(values)) for one, (p, q) in shares.items()
        }
        most = max(errors, key=errors.__getitem__)
        p, q = shares[most]
        both = np.array(list(shares.values()))
        reported = {
            "psi": population_stability(both[:, 0], both[:, 1]),
            "total_variation": float(abs(both[:, 0] - both[:, 1]).sum() / 2),
        }
        new = ", a new category" if p == 0 else ""
        text = f"{name}: {most!r} in {q:.1%} of the rows, {p:.1%} in the baseline{new}"
        return errors[most], Change("share", abs(q - p), "share of rows", p, q, text, reported)

    def _of_embeddings(self, values: NDArray[Any]) -> tuple[float, Change]:
        """Return by how much an embedding moved, and its standard errors."""
        size = self._distance or 1.0
        moved = float(np.linalg.norm(values.mean(0) - self._centre)) / size
        far = float(np.linalg.norm(values - self._centre, axis=1).mean()) / size
        text = (
            f"{self._column.name}: mean moved by {moved:.2f} times the mean distance to the centre "
            f"of the baseline; rows are {far:.2f} times as far from it"
        )
        root = math.sqrt(1 / self._known + 1 / len(values))
        unit = "mean distances to the centre"
        return moved / root, Change("mean", moved, unit, 0.0, moved, text)


def _missing(column: Column, values: NDArray[Any]) -> NDArray[np.bool_]:
    if column.kind == "category":
        return np.array([one is None for one in values], bool)
    missing = ~np.isfinite(values) if column.kind == "embedding" else np.isnan(values)
    return np.asarray(missing.any(1) if missing.ndim == 2 else missing)


def _share_errors(before: float, rows: int, after: float, more: int) -> float:
    """Return the difference of two shares in standard errors."""
    pooled = (before * rows + after * more) / (rows + more)
    return abs(after - before) / math.sqrt(max(pooled * (1 - pooled), 1e-9) * (1 / rows + 1 / more))


def change_together(
    names: list[str],
    axis: NDArray[np.float64],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
) -> Change:
    """Return the change of several columns together.

    Args:
        names: of the columns.
        axis: float64 [columns], weights of the direction along which they changed.
        before: float64 [rows, columns], sample of the baseline.
        after: float64 [rows, columns], window.
    """
    pair = np.sort(np.argsort(abs(axis))[::-1][:2])
    first, second = (_rank_correlation(rows[:, pair]) for rows in (before, after))
    left, right = (names[one] for one in pair)
    text = (
        f"{left} and {right}: rank correlation {second:.2f}, {first:.2f} in the baseline; these "
        "have the largest weights in a direction along which columns changed together"
    )
    return Change("correlation", second - first, "rank correlation", first, second, text)


def _rank_correlation(rows: NDArray[np.float64]) -> float:
    known = rows[~np.isnan(rows).any(1)]
    if len(known) < 3:
        return float("nan")
    ranks = known.argsort(0, kind="stable").argsort(0).astype(float)
    centred = ranks - ranks.mean(0)
    return float((centred[:, 0] * centred[:, 1]).sum() / np.sqrt((centred**2).sum(0).prod()))
