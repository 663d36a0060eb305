"""How far a feature is from the baseline, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.drift import distances
from vinedresser.explain.drift.contents import Column

__all__ = ["Change", "change_of", "change_together"]


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


def change_of(column: Column, baseline: NDArray[Any], window: NDArray[Any]) -> Change:
    """Return the largest change of a column.

    Args:
        column: the column.
        baseline: sample of the baseline; see `read_column` for arrays of each kind.
        window: values of a window, at least one.
    """
    missing = _missing(column, baseline), _missing(column, window)
    known = baseline[~missing[0]], window[~missing[1]]
    gone = _missing_change(column.name, missing[0], missing[1])
    if min(map(len, known)) == 0:
        return gone
    found = {"number": _of_numbers, "category": _of_categories, "embedding": _of_embeddings}[
        column.kind
    ](column.name, *known)
    return gone if _surprise_of_missing(*missing) > found[0] else found[1]


def _missing(column: Column, values: NDArray[Any]) -> NDArray[np.bool_]:
    if column.kind == "category":
        return np.array([one is None for one in values], bool)
    missing = ~np.isfinite(values) if column.kind == "embedding" else np.isnan(values)
    return np.asarray(missing.any(1) if missing.ndim == 2 else missing)


def _share_surprise(before: float, rows: int, after: float, more: int) -> float:
    """Return the difference of two shares in standard errors."""
    pooled = (before * rows + after * more) / (rows + more)
    error = np.sqrt(max(pooled * (1 - pooled), 1e-9) * (1 / rows + 1 / more))
    return float(abs(after - before) / error)


def _surprise_of_missing(before: NDArray[np.bool_], after: NDArray[np.bool_]) -> float:
    return _share_surprise(float(before.mean()), len(before), float(after.mean()), len(after))


def _missing_change(name: str, before: NDArray[np.bool_], after: NDArray[np.bool_]) -> Change:
    first, second = float(before.mean()), float(after.mean())
    text = f"{name}: missing in {second:.1%} of the rows, {first:.1%} in the baseline"
    return Change("missing", abs(second - first), "share of rows", first, second, text)


def _of_numbers(
    name: str, before: NDArray[np.float64], after: NDArray[np.float64]
) -> tuple[float, Change]:
    before, after = (
        np.nan_to_num(one, nan=0.0, posinf=1e300, neginf=-1e300) for one in (before, after)
    )
    centre = float(np.median(before))
    spread = _spread(before, centre)
    reported = {"ks": distances.kolmogorov_smirnov(before, after)}
    reported["psi"] = distances.population_stability(*distances.decile_shares(before, after))
    if spread == 0:
        other = float((after != centre).mean())
        text = (
            f"{name}: {other:.1%} of the values are not {centre:.4g}, the only one in the baseline"
        )
        return _share_surprise(0.0, len(before), other, len(after)), Change(
            "constant", other, "share of rows", 0.0, other, text, reported
        )
    reported["wasserstein"] = distances.wasserstein(before, after) / spread
    root = np.sqrt(1 / len(before) + 1 / len(after))
    middle, wide = float(np.median(after)), _spread(after, float(np.median(after)))
    shift, stretch = (middle - centre) / spread, wide / spread
    # In standard errors of a normal distribution.
    surprises = {
        "median": abs(shift) / (1.2533 * root),
        "spread": abs(np.log(max(stretch, 1e-9))) / (1.17 * root),
        "distribution": reported["ks"] / (0.87 * root),
    }
    most = max(surprises, key=surprises.__getitem__)
    if most == "median":
        way = "higher" if shift > 0 else "lower"
        text = (
            f"{name}: median {middle:.4g}, {centre:.4g} in the baseline "
            f"({abs(shift):.2f} standard deviations {way})"
        )
        change = Change(
            "median", float(shift), "standard deviations", centre, middle, text, reported
        )
    elif most == "spread":
        text = f"{name}: spread {wide:.4g}, {spread:.4g} in the baseline ({stretch:.2f} times)"
        change = Change("spread", float(stretch), "times", spread, wide, text, reported)
    else:
        text = (
            f"{name}: distributed otherwise, with shares of values below some point that differ by "
            f"{reported['ks']:.1%}"
        )
        change = Change(
            "distribution", reported["ks"], "share of rows", 0.0, reported["ks"], text, reported
        )
    return surprises[most], change


def _spread(values: NDArray[np.float64], centre: float) -> float:
    """Return the standard deviation that a normal distribution with these quartiles has."""
    low, high = np.quantile(values, [0.25, 0.75])
    # Of values most of which are equal, the quartiles say nothing.
    return float((high - low) / 1.349) or float(
        np.sqrt(np.mean((values - centre).clip(-1e150, 1e150) ** 2))
    )


def _of_categories(name: str, before: NDArray[Any], after: NDArray[Any]) -> tuple[float, Change]:
    shares = distances.category_shares(before, after)
    surprises = {
        one: _share_surprise(p, len(before), q, len(after)) for one, (p, q) in shares.items()
    }
    most = max(surprises, key=surprises.__getitem__)
    p, q = shares[most]
    both = np.array(list(shares.values()))
    reported = {
        "psi": distances.population_stability(both[:, 0], both[:, 1]),
        "total_variation": float(abs(both[:, 0] - both[:, 1]).sum() / 2),
    }
    new = ", a new category" if p == 0 else ""
    text = f"{name}: {most!r} in {q:.1%} of the rows, {p:.1%} in the baseline{new}"
    return surprises[most], Change("share", abs(q - p), "share of rows", p, q, text, reported)


def _of_embeddings(
    name: str, before: NDArray[np.float64], after: NDArray[np.float64]
) -> tuple[float, Change]:
    centre = before.mean(0)
    near, far = (np.linalg.norm(one - centre, axis=1) for one in (before, after))
    spread = float(np.sqrt(np.mean(near**2))) or 1.0
    moved = float(np.linalg.norm(after.mean(0) - centre)) / spread
    root = np.sqrt(1 / len(before) + 1 / len(after))
    text = (
        f"{name}: mean moved by {moved:.2f} times the spread of the baseline; rows are "
        f"{far.mean() / (near.mean() or 1.0):.2f} times as far from its centre"
    )
    return moved / root, Change("mean", moved, "times the spread", 0.0, moved, text)


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
