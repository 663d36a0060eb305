"""A plain implementation of the statistics, as a reference for the library's."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["FIGURES", "RELATIVE", "assert_close", "expected_figures"]

Wide = NDArray[np.float64]

_PLAIN: dict[str, Callable[[Wide], float]] = {
    "min": lambda x: float(np.min(x)),
    "max": lambda x: float(np.max(x)),
    "mean": lambda x: float(np.mean(x)),
    "sum": lambda x: float(np.sum(x)),
    "l1": lambda x: float(np.sum(np.abs(x))),
    "l2": lambda x: float(np.sqrt(np.sum(x**2))),
    "std": lambda x: float(np.std(x)),
    "variance": lambda x: float(np.var(x)),
    "zero_share": lambda x: float(np.mean(x == 0)),
    "nonfinite": lambda x: float(np.sum(~np.isfinite(x))),
}
FIGURES = (*_PLAIN, *(f"abs_{name}" for name in _PLAIN))
# How far float32 primitives are off, as a share of the figure.
RELATIVE = 2e-5


def expected_figures(array: NDArray[np.generic]) -> dict[str, float]:
    """Return all figures of an array, of float64 elements or magnitudes."""
    if array.dtype.kind == "c":
        array = np.abs(array.astype(np.complex128))
    x = array.astype(np.float64).reshape(-1)
    found = {}
    for name, compute in _PLAIN.items():
        for word, elements in ((name, x), (f"abs_{name}", np.abs(x))):
            if x.size:
                with np.errstate(all="ignore"):
                    found[word] = compute(elements)
            else:
                found[word] = 0.0 if name in ("sum", "l1", "l2", "nonfinite") else math.nan
    return found


def assert_close(found: dict[str, float], expected: dict[str, float], relative: float) -> None:
    """Assert that figures agree.

    Args:
        found: some figures.
        expected: all figures.
        relative: how far l1, l2, std and variance may be off, as a share of themselves; a sum and a
            mean may be as far off as a tenth of that share of the sum and mean of the magnitudes.
    """
    for name, value in found.items():
        right = expected[name]
        statistic = name.removeprefix("abs_")
        absolute = 1e-300
        if statistic in ("sum", "mean"):
            absolute = max(0.1 * relative * expected[f"abs_{statistic}"], absolute)
        elif statistic == "std":
            # A spread that is tiny relative to the elements has no significant digits.
            absolute = max(1e-9 * expected["abs_mean"], absolute)
        elif statistic == "variance":
            absolute = max((1e-9 * min(expected["abs_mean"], 1e150)) ** 2, absolute)
        share = 2 * relative if statistic == "variance" else relative
        if math.isfinite(value) and math.isfinite(right):
            assert abs(value - right) <= max(share * abs(right), absolute), (name, value, right)
        else:
            assert str(value) == str(right), name
