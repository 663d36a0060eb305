"""The step at which two runs part: bit for bit, and beyond their noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.store.step_record import MODES, Mode

__all__ = ["Parting", "beyond_noise", "parting"]

# Collections whose statistics show the state of a training; others are settings or times.
_STATISTICS = {"gradients": ("l2", "abs_mean"), "weights": ("l2",), "updates": ("l2",)}
# Common values per window, fewest windows, and distance in standard deviations.
_WINDOW = 20
_FEWEST = 2
_DISTANCE = 2.0
# Ratio of the standard deviation of normal noise to its median absolute value.
_NORMAL = 1.4826


@dataclass(frozen=True)
class Parting:
    """Where two runs part.

    Attributes:
        compared: number of values that both runs captured at the same step.
        exact: first step at which such a value differs in any bit; None if none does.
        mode: mode of that step.
        quantity: name of the value, such as ``losses/CrossEntropyLoss`` or
            ``gradients/0.weight l2``; "" if none differs.
        values: that value in both runs; None if none differs.
        noise: first step at which the training losses are beyond their noise; None if they are
            not, or if there are too few.
        judged: there are enough common training losses to tell.
    """

    compared: int
    exact: int | None
    mode: Mode
    quantity: str
    values: tuple[float, float] | None
    noise: int | None
    judged: bool


def parting(
    one: Run,
    two: Run,
    losses: tuple[Column, Column] | None,
    seeds: Sequence[Sequence[Column]] = (),
) -> Parting:
    """Return where two runs part, by what both have captured on rank 0 at the same steps.

    Bit for bit, all losses, metrics, and norms of gradients, weights and updates are compared as
    stored, in float64; values that are NaN in both are equal. Of several quantities that part at
    the same step, the first captured is named. `beyond_noise` compares the training losses.

    Args:
        two: another run.
        losses: the training loss of each; None: one of them has none.
        seeds: training losses of the runs of each of their configurations, with which the spread
            over seeds is estimated; configurations with one run do not count.
    """
    theirs = dict(_quantities(two))
    compared, first = 0, None
    for name, own in _quantities(one):
        other = theirs.get(name)
        if other is None:
            continue
        for mode in MODES:
            steps, left, right = _common(own.of(mode), other.of(mode))
            compared += len(steps)
            unequal = np.flatnonzero((left != right) & ~(np.isnan(left) & np.isnan(right)))
            if len(unequal) and (first is None or steps[unequal[0]] < first[0]):
                place = unequal[0]
                first = int(steps[place]), mode, name, (float(left[place]), float(right[place]))
    noise, judged = None, False
    if losses is not None:
        steps, left, right = _common(*losses)
        judged = len(steps) >= _FEWEST * _WINDOW
        noise = beyond_noise(steps, left, right, [_rows(steps, columns) for columns in seeds])
    exact, mode, name, values = first or (None, "train", "", None)
    return Parting(compared, exact, mode, name, values, noise, judged)


def beyond_noise(
    steps: NDArray[np.int64],
    one: NDArray[np.float64],
    two: NDArray[np.float64],
    seeds: Sequence[NDArray[np.float64]] = (),
) -> int | None:
    """Return the first step from which two losses are further apart than their noise.

    The values are cut into windows of 20. In each window, the level of a run is its median, and
    its noise the standard deviation of a single value about a straight line through its
    neighbours, estimated from the second differences (Gasser, Sroka and Jennen-Steinmetz,
    "Residual variance and residual pattern in nonlinear regression", Biometrika 1986), by their
    median absolute value, so that single outliers do not count. The runs part at the first of two
    windows in a row in which the levels differ, in the same direction, by more than two standard
    deviations of the difference of two single values. In a chart, the two bands then no longer
    overlap. A level that is not finite in one run only differs from any other.

    This noise is that of the batches. Seeds differ by more than what is significant over many
    steps, which is why the threshold is a distance and not a level of significance. If there are
    several runs of a configuration, the variance of their levels adds to that of the noise: it
    then takes more than what seeds do.

    Shape legend: N values; S runs that differ by their seeds.

    Args:
        steps: int64 [N], ascending.
        one: float64 [N].
        two: float64 [N].
        seeds: the losses of each configuration at these steps, float64 [S, N]; fewer than two
            rows do not count.

    Returns:
        The first step of the window; None if there is none, or fewer than 40 values.
    """
    windows = len(steps) // _WINDOW
    if windows < _FEWEST:
        return None
    cut = (windows, _WINDOW)
    left, right = (values[: windows * _WINDOW].reshape(cut) for values in (one, two))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        levels = np.median(left, axis=1), np.median(right, axis=1)
        noise = np.sqrt(_noise(left) ** 2 + _noise(right) ** 2 + _seed_variance(seeds, windows))
        distance = np.where(levels[0] == levels[1], 0.0, (levels[0] - levels[1]) / noise)
    broken = np.isfinite(levels[0]) != np.isfinite(levels[1])
    distance = np.where(broken, np.inf, np.nan_to_num(distance, nan=0.0))
    apart = np.abs(distance) > _DISTANCE
    lasting = apart[:-1] & apart[1:] & (np.sign(distance[:-1]) == np.sign(distance[1:]))
    found = np.flatnonzero(lasting)
    return int(steps[found[0] * _WINDOW]) if len(found) else None


def _noise(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the noise of windows of values, float64 [windows, 20]: float64 [windows]."""
    residuals = values[:, 1:-1] - (values[:, :-2] + values[:, 2:]) / 2
    # The variance of a residual is 1 + 1/4 + 1/4 times that of a value.
    return np.asarray(_NORMAL * np.median(np.abs(residuals), axis=1) / np.sqrt(1.5))


def _seed_variance(seeds: Sequence[NDArray[np.float64]], windows: int) -> NDArray[np.float64]:
    """Return the variance that seeds add to a difference of levels, float64 [windows].

    A configuration without several runs is taken to spread as the other one.
    """
    found = [
        np.median(rows[:, : windows * _WINDOW].reshape(len(rows), windows, _WINDOW), axis=2)
        for rows in seeds
        if len(rows) > 1
    ]
    if not found:
        return np.zeros(windows)
    variances = np.array([levels.var(axis=0, ddof=1) for levels in found])
    return np.asarray(2 * np.nan_to_num(variances, nan=0.0, posinf=0.0).mean(axis=0))


def _rows(steps: NDArray[np.int64], columns: Sequence[Column]) -> NDArray[np.float64]:
    """Return the values of the columns that have all of these steps, float64 [S, steps]."""
    rows = []
    for column in columns:
        known, places, _ = np.intersect1d(column.steps, steps, return_indices=True)
        if len(known) == len(steps):
            rows.append(column.values[places])
    return np.array(rows).reshape(len(rows), len(steps))


def _quantities(run: Run) -> Iterator[tuple[str, Column]]:
    """Yield what is compared, by name."""
    for collection in ("losses", "metrics"):
        yield from run.scalars(collection).items()
    for collection, reductions in _STATISTICS.items():
        for reduction in reductions:
            columns: Mapping[str, Column] = run.reductions(reduction, collection)
            for name, column in columns.items():
                yield f"{name} {reduction}", column


def _common(
    one: Column, two: Column
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the common steps of two columns, int64 [N], and the values there, float64 [N] each.

    If a column has a step several times, its first value counts.
    """
    steps, left, right = np.intersect1d(one.steps, two.steps, return_indices=True)
    return steps, one.values[left], two.values[right]
