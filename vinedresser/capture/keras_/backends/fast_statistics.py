"""Fast statistics of float32 arrays with float32 operations of numpy.

The results are those of `vinedresser.store.reductions` in less than half the time that float64
takes. The relative error is about 1e-5 for l2, std and abs_mean; the error of the mean is about
1e-6 of abs_mean. Statistics are computed again in float64 if float32 overflows, underflows or meets
a non-finite element, and if the variance is small relative to the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reductions import Statistics, compute_statistics, plan_reductions
from vinedresser.store.reductions.elementwise import elementwise_statistics

# Rows are summed in float32, their sums in float64; 1024 elements lose no accuracy.
_ROW = 1 << 10
# Elements of a piece that fits into the processor cache.
_PIECE = 1 << 17
# The squares of smaller float32 numbers are denormal or zero.
_MIN_RMS = 1e-15
# With a smaller share of the variance in the mean square, cancellation loses too many digits.
_MIN_VARIANCE_SHARE = 0.1

# Aggregates over all elements, by the names of `_AGGREGATES`.
_Totals = dict[str, float]


def fast_statistics(array: NDArray[Any], words: frozenset[str], axis: int | None) -> Statistics:
    """Compute the statistics of an array like `compute_statistics`, but faster for float32.

    Args:
        array: values of any shape and dtype.
        words: names of the reductions; see `vinedresser.store.reductions`.
        axis: the channel axis; see `channel_axis`.
    """
    if array.dtype != np.float32 or not array.size:
        return compute_statistics(array, words, axis)
    wanted = plan_reductions(words)
    found = compute_statistics(array, wanted.late, axis) if wanted.late else Statistics()
    if wanted.elementwise:
        values = _elementwise(array.reshape(-1), wanted.elementwise_names)
        for word in wanted.elementwise:
            found.scalars[word.text] = values[word.canonical]
    return found


def _elementwise(flat: NDArray[np.float32], names: tuple[str, ...]) -> dict[str, float]:
    """Return elementwise statistics of an array by name.

    Args:
        flat: float32 [n], n > 0.
        names: canonical names of elementwise reductions.
    """
    with np.errstate(all="ignore"):
        found = _pass_over(flat, _needs(names))
    values: dict[str, float] = {}
    if not _unreliable(found, flat):
        quick = (name for name in names if name in _FORMULAS)
        values = {name: _FORMULAS[name][1](found, flat.size) for name in quick}
    again = tuple(name for name in names if math.isnan(values.get(name, math.nan)))
    if again:
        rows = elementwise_statistics(flat.reshape(1, -1), again)
        values.update((name, float(value[0])) for name, value in rows.items())
    return values


@cache
def _needs(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the aggregates that some statistics need; slow statistics need none."""
    quick = (name for name in names if name in _FORMULAS)
    return tuple(dict.fromkeys(need for name in quick for need in _FORMULAS[name][0]))


def _pass_over(flat: NDArray[np.float32], needs: tuple[str, ...]) -> _Totals:
    """Return aggregates over all elements, reading each element from memory once."""
    found: _Totals = {}
    for rows in _pieces(flat):
        for need in needs:
            taken = float(_AGGREGATES[need](rows))
            known = found.get(need)
            found[need] = taken if known is None else float(_JOIN.get(need, np.add)(known, taken))
    return found


def _pieces(flat: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yield all elements in pieces [k, _ROW]; the remaining elements form a row of their own."""
    whole = flat.size - flat.size % _ROW
    for first in range(0, whole, _PIECE):
        yield flat[first : min(first + _PIECE, whole)].reshape(-1, _ROW)
    if whole < flat.size:
        yield flat[whole:].reshape(1, -1)


def _unreliable(found: _Totals, flat: NDArray[np.float32]) -> bool:
    """Return whether a sum has reached the limits of float32 or met a non-finite element."""
    if not all(map(math.isfinite, found.values())):
        return True
    squares = found.get("squares", math.inf)
    return squares < _MIN_RMS**2 * flat.size and bool(flat.any())


def _sum(rows: NDArray[np.float32]) -> Any:
    """Return the sum of all elements; np.sum is slower for short rows."""
    return np.add.reduce(np.einsum("ij->i", rows), dtype=np.float64)


# Aggregate of a piece [k, _ROW], by name.
_AGGREGATES: dict[str, Callable[[NDArray[np.float32]], Any]] = {
    "low": lambda rows: np.minimum.reduce(rows, None),
    "high": lambda rows: np.maximum.reduce(rows, None),
    "sum": _sum,
    "squares": lambda rows: np.add.reduce(np.vecdot(rows, rows), dtype=np.float64),
    "abs_sum": lambda rows: _sum(np.abs(rows)),
    "zeros": lambda rows: np.count_nonzero(rows == 0),
}
# How the aggregates of two pieces are combined, if not by addition.
_JOIN: dict[str, np.ufunc] = {"low": np.minimum, "high": np.maximum}


def _variance(found: _Totals, count: int) -> float:
    """Return the variance; NaN if float32 is not precise enough."""
    mean_square = found["squares"] / count
    variance = mean_square - (found["sum"] / count) ** 2
    return variance if variance > _MIN_VARIANCE_SHARE * mean_square else math.nan


# The aggregates that a statistic needs, and the formula for it with the number of elements.
_FORMULAS: dict[str, tuple[tuple[str, ...], Callable[[_Totals, int], float]]] = {
    "min": (("low",), lambda found, _: found["low"]),
    "max": (("high",), lambda found, _: found["high"]),
    "abs_max": (("low", "high"), lambda found, _: max(-found["low"], found["high"])),
    "sum": (("sum",), lambda found, _: found["sum"]),
    "mean": (("sum",), lambda found, count: found["sum"] / count),
    "l1": (("abs_sum",), lambda found, _: found["abs_sum"]),
    "abs_mean": (("abs_sum",), lambda found, count: found["abs_sum"] / count),
    "l2": (("squares",), lambda found, _: math.sqrt(found["squares"])),
    "variance": (("sum", "squares"), _variance),
    "std": (("sum", "squares"), lambda found, count: math.sqrt(_variance(found, count))),
    "zero_share": (("zeros",), lambda found, count: found["zeros"] / count),
    # A non-finite element would have been detected by the sum.
    "nonfinite": (("sum",), lambda *_: 0.0),
}
