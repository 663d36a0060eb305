"""How far columns have changed together, along a direction."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.directions import Moments
from vinedresser.drift.sizes.change import CERTAIN, Change, within

# Columns of a direction that are named, at most, and the weight of others relative to the largest.
_NAMED, _LIGHTER = 3, 0.3
# A correlation is named instead of a direction unless that changed so much more clearly.
_CLEARER = 1.5
# So that the correlation of columns that are equal is finite in Fisher's transformation.
_MOST = 0.999999


def change_together(
    names: list[str],
    axis: NDArray[np.float64],
    inner_axis: NDArray[np.float64],
    moments: tuple[Moments, Moments],
    rows: float,
) -> Change:
    """Return the clearest change of several columns together.

    Args:
        axis: float64 [columns], weights of the direction along which there is evidence.
        inner_axis: float64 [dimensions], the same in the dimensions of the moments.
        moments: of the rows before the change, and of those since then from which the direction
            was not learned.
        rows: number of nearly independent rows among the latter.
    """
    before, after = moments
    rows = max(rows, 4.0)
    order = np.argsort(-abs(axis), kind="stable")
    heavy = [at for at in order if abs(axis[at]) >= _LIGHTER * abs(axis[order[0]])]
    shown = ", ".join(names[at] for at in heavy[:_NAMED])
    more = f" and {len(heavy) - _NAMED} more columns" if len(heavy) > _NAMED else ""
    along = f"along a direction of {shown}{more}"
    found = _along(along, inner_axis, before, after, rows)
    if len(names) == len(inner_axis) and len(heavy) > 1:
        pairs = [
            _correlation((first, second), names, before, after, rows)
            for place, first in enumerate(heavy[:8])
            for second in heavy[place + 1 : 8]
        ]
        pair = max(pairs, key=lambda one: one.errors)
        if _CLEARER * pair.errors > found.errors:
            return pair
    return found


def _along(
    along: str, axis: NDArray[np.float64], before: Moments, after: Moments, rows: float
) -> Change:
    """Return the change of the mean or of the spread along a direction."""
    variances = [float(axis @ one.covariance @ axis) for one in (before, after)]
    was, now = (math.sqrt(max(variance, 1e-12)) for variance in variances)
    root = math.sqrt(1 / before.rows + 1 / rows)
    far = float(axis @ (after.mean - before.mean)) / was
    error = math.sqrt(1 / before.rows + (now / was) ** 2 / rows)
    ratio = now / was
    # Of the logarithm of a standard deviation of a normal distribution.
    spread_error = root / math.sqrt(2)
    if abs(far) / root >= abs(math.log(ratio)) / spread_error:
        size = within(abs(far), CERTAIN * error)
        text = f"mean {along} moved by {size} standard deviations"
        unit = "standard deviations"
        return Change(
            "direction", abs(far), CERTAIN * error, unit, 0.0, abs(far), text, abs(far) / root
        )
    uncertainty = CERTAIN * spread_error * ratio
    text = f"spread {along} {within(ratio, uncertainty)} times that before"
    errors = abs(math.log(ratio)) / spread_error
    return Change("spread", ratio, uncertainty, "times", 1.0, ratio, text, errors)


def _correlation(
    pair: tuple[int, int], names: list[str], before: Moments, after: Moments, rows: float
) -> Change:
    """Return the change of the correlation of two columns."""
    found = []
    for one in (before, after):
        part = one.covariance[np.ix_(pair, pair)]
        found.append(float(part[0, 1] / math.sqrt(part[0, 0] * part[1, 1])))
    was, now = found
    # Fisher's transformation has nearly this error, whatever the correlation.
    error = math.sqrt(1 / max(before.rows - 3, 1) + 1 / max(rows - 3, 1))
    was_z, now_z = (math.atanh(max(-_MOST, min(_MOST, one))) for one in found)
    uncertainty = CERTAIN * error * (1 - now**2)
    left, right = (names[at] for at in pair)
    text = f"{left} and {right}: correlation {within(now, uncertainty)}, {was:.2f} before"
    return Change(
        "correlation",
        now - was,
        uncertainty,
        "correlation",
        was,
        now,
        text,
        abs(now_z - was_z) / error,
    )
