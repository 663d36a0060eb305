"""Statistics of every element, in numpy, at about the speed of memory.

Everything is summed in float64, in pieces that fit into the processor's cache: nothing of the
tensor's size is allocated, and each element is read once. A second pass follows only if the first
is inconclusive: if a variance is small relative to the mean, or an element is not finite.

Shape legend: C, channels (1 for a tensor as a whole); m, elements per channel; k, elements per
piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["elementwise_statistics", "statistic_of_empty", "widened"]

# float64 [C] or [c, k]; numpy annotates most of these results as Any.
_Rows = Any

# Elements of a piece, and of a row passed to BLAS. For longer rows, BLAS would use threads that
# then spin for a while and compete with the training's.
_PIECE = 1 << 17
_ROW = 1 << 13
# These are 0 for no elements, the others NaN.
_SUMS = ("sum", "l1", "l2", "nonfinite")
# The mean square has a relative error of about 1e-15. A variance that is a smaller fraction of it
# than this has too few digits left.
_CANCELS = 1e-6


def elementwise_statistics(
    rows: NDArray[np.generic], names: tuple[str, ...]
) -> dict[str, NDArray[np.float64]]:
    """Return statistics of each row, by name; float64 [C].

    Args:
        rows: [C, m]; any real, boolean or complex dtype.
        names: `Reduction.canonical` of reductions that are not sampled.
    """
    if not rows.shape[1]:
        return {name: np.full(len(rows), statistic_of_empty(name)) for name in names}
    with np.errstate(all="ignore"):
        found = _Found(rows, _pass_over(rows, _needs(names)))
        return {name: np.asarray(_FORMULAS[name][1](found), np.float64) for name in names}


@cache
def _needs(names: tuple[str, ...]) -> frozenset[str]:
    """Return the accumulators that some statistics need."""
    return frozenset().union(*(_FORMULAS[name][0] for name in names))


def statistic_of_empty(name: str) -> float:
    """Return the value of a statistic for no elements.

    Args:
        name: `Reduction.canonical`.
    """
    return 0.0 if name in _SUMS else np.nan


def widened(
    array: NDArray[np.generic], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return an array in float64; complex elements are replaced by their magnitudes.

    Args:
        array: any shape; any real, boolean or complex dtype.
        out: output array of the same shape; None: a new one.
    """
    if out is None:
        out = np.empty(array.shape)
    if array.dtype.kind == "c":
        # Magnitudes of complex64 are float32 and may overflow; complex128 does not.
        np.abs(array.astype(np.complex128), out=out)
    else:
        out[...] = array
    return out


def _pass_over(rows: NDArray[np.generic], needs: frozenset[str]) -> dict[str, _Rows]:
    """Return the accumulators of each row, float64 [C]; see `_TAKEN` and `_TAKEN_OF_ABS`."""
    if rows.size <= _PIECE:
        return _look_at(rows, np.empty(rows.shape), needs)
    found = {need: np.full(len(rows), _START.get(need, 0.0)) for need in needs}
    for where, piece, memory in _pieces(rows):
        for need, taken in _look_at(piece, memory, needs).items():
            _JOIN.get(need, np.add)(found[need][where], taken, out=found[need][where])
    return found


def _look_at(piece: NDArray[np.generic], memory: _Rows, needs: frozenset[str]) -> dict[str, _Rows]:
    """Return the accumulators of each row of a piece, [c]; overwrites the memory."""
    found: dict[str, _Rows] = {}
    if piece.dtype == np.float32:
        # Faster than on float64 elements.
        found = {need: take(piece) for need, take in _EXTREMES.items() if need in needs}
        if len(found) == len(needs):
            return found
    wide = widened(piece, memory)
    for need, take in _TAKEN.items():
        if need in needs and need not in found:
            found[need] = take(wide)
    if needs & _TAKEN_OF_ABS.keys():
        np.abs(wide, out=wide)
        for need, take in _TAKEN_OF_ABS.items():
            if need in needs:
                found[need] = take(wide)
    return found


def _pieces(rows: NDArray[np.generic]) -> Iterator[tuple[slice, NDArray[np.generic], _Rows]]:
    """Yield a slice of rows, [c, k] of their elements, and a float64 buffer of that shape."""
    count, size = rows.shape
    memory = np.empty(min(count * size, _PIECE))
    if size >= _PIECE:
        places = [(row, row + 1, at) for row in range(count) for at in range(0, size, _PIECE)]
    else:
        step = _PIECE // size
        places = [(row, row + step, 0) for row in range(0, count, step)]
    for first, last, at in places:
        piece = rows[first:last, at : at + _PIECE]
        yield slice(first, last), piece, memory[: piece.size].reshape(piece.shape)


def _total(wide: _Rows) -> _Rows:
    return np.einsum("ij->i", wide)


def _squares(wide: _Rows) -> _Rows:
    """Return the sum of squares of each row."""
    count, size = wide.shape
    if size <= _ROW:
        return np.vecdot(wide, wide)
    whole = size - size % _ROW
    parts = wide[:, :whole].reshape(count, -1, _ROW)
    rest = wide[:, whole:]
    return np.vecdot(parts, parts).sum(1) + np.vecdot(rest, rest)


def _count(which: NDArray[np.bool_]) -> _Rows:
    """Return the number of true elements per row; float64 [c]."""
    # Much faster without an axis.
    if len(which) == 1:
        return np.array([np.count_nonzero(which)], np.float64)
    return np.count_nonzero(which, axis=1).astype(np.float64)


def _low(piece: NDArray[Any]) -> _Rows:
    return np.minimum.reduce(piece, 1)


def _high(piece: NDArray[Any]) -> _Rows:
    return np.maximum.reduce(piece, 1)


# The accumulators of a piece, [c, k] -> [c]; `_TAKEN_OF_ABS` of the magnitudes of its elements.
_EXTREMES: dict[str, Callable[[NDArray[Any]], _Rows]] = {"low": _low, "high": _high}
_TAKEN: dict[str, Callable[[NDArray[Any]], _Rows]] = {
    **_EXTREMES,
    "sum": _total,
    "squares": _squares,
    "zeros": lambda piece: _count(piece == 0),
}
_TAKEN_OF_ABS: dict[str, Callable[[NDArray[Any]], _Rows]] = {"abs_sum": _total, "abs_low": _low}
# How the accumulators of pieces are combined if not by addition, and their initial values.
_JOIN: dict[str, np.ufunc] = {"low": np.minimum, "high": np.maximum, "abs_low": np.minimum}
_START = {"low": np.inf, "high": -np.inf, "abs_low": np.inf}


class _Found:
    """The accumulators of a pass over the rows, and results that several statistics share.

    Args:
        rows: [C, m], m > 0.
        totals: the accumulators, float64 [C], by name.
    """

    def __init__(self, rows: NDArray[np.generic], totals: dict[str, _Rows]) -> None:
        self._rows = rows
        self.size = rows.shape[1]
        self.totals = totals

    @cached_property
    def variance(self) -> _Rows:
        return self._variance(self.totals["sum"] / self.size, absolute=False)

    @cached_property
    def abs_variance(self) -> _Rows:
        return self._variance(self.totals["abs_sum"] / self.size, absolute=True)

    def nonfinite(self) -> _Rows:
        counts = np.zeros(len(self._rows))
        # A NaN or infinity among the elements makes the sum non-finite.
        if not np.isfinite(self.totals["sum"]).all():
            for where, piece, memory in _pieces(self._rows):
                counts[where] += _count(~np.isfinite(widened(piece, memory)))
        return counts

    def _variance(self, mean: _Rows, *, absolute: bool) -> _Rows:
        """Return the variance of each row, float64 [C].

        Args:
            mean: mean of each row, float64 [C].
            absolute: use the magnitudes, also for the mean.
        """
        mean_square = self.totals["squares"] / self.size
        variance = mean_square - mean * mean
        # Also False if the square of an element overflows or underflows float64.
        clear = variance > _CANCELS * mean_square
        if clear.all():
            return variance
        doubtful = ~clear & np.isfinite(mean) & (mean != 0)
        if not doubtful.any():
            return variance
        again = np.zeros(len(mean))
        for where, piece, memory in _pieces(self._rows):
            wide = widened(piece, memory)
            if absolute:
                np.abs(wide, out=wide)
            wide -= mean[where, None]
            again[where] += _squares(wide)
        return np.where(doubtful, again / self.size, variance)


# The accumulators that a statistic needs, and the formula for it; see `_TAKEN`, `_TAKEN_OF_ABS`.
_FORMULAS: dict[str, tuple[set[str], Callable[[_Found], _Rows]]] = {
    "min": ({"low"}, lambda of: of.totals["low"]),
    "max": ({"high"}, lambda of: of.totals["high"]),
    "mean": ({"sum"}, lambda of: of.totals["sum"] / of.size),
    "sum": ({"sum"}, lambda of: of.totals["sum"]),
    "l1": ({"abs_sum"}, lambda of: of.totals["abs_sum"]),
    "l2": ({"squares"}, lambda of: np.sqrt(of.totals["squares"])),
    "std": ({"sum", "squares"}, lambda of: np.sqrt(of.variance)),
    "variance": ({"sum", "squares"}, lambda of: of.variance),
    "zero_share": ({"zeros"}, lambda of: of.totals["zeros"] / of.size),
    "nonfinite": ({"sum"}, _Found.nonfinite),
    "abs_min": ({"abs_low"}, lambda of: of.totals["abs_low"]),
    "abs_max": (
        {"low", "high"},
        lambda of: np.maximum(np.abs(of.totals["low"]), np.abs(of.totals["high"])),
    ),
    "abs_mean": ({"abs_sum"}, lambda of: of.totals["abs_sum"] / of.size),
    "abs_std": ({"abs_sum", "squares"}, lambda of: np.sqrt(of.abs_variance)),
    "abs_variance": ({"abs_sum", "squares"}, lambda of: of.abs_variance),
}
