"""Statistics kept instead of, or beside, a tensor: their names, and the reference in numpy.

Each is a float64. With n elements x_i, all of them counted, whatever the shape:

    min, max     smallest and greatest element
    mean         sum(x_i) / n
    l2           sqrt(sum(x_i^2)), the Euclidean norm
    abs_mean     sum(|x_i|) / n
    std          sqrt(sum((x_i - mean)^2) / n), of the population (ddof 0)
    zero_share   share of elements equal to 0, from 0 to 1
    nonfinite    number of elements that are NaN or infinite

A NaN among the elements makes every statistic NaN but zero_share and nonfinite, which count. Of no
elements, l2 and nonfinite are 0 and the others NaN. Booleans count as 0 and 1; of complex elements
the magnitudes are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["REDUCTIONS", "reduce_array"]

REDUCTIONS = ("min", "max", "mean", "l2", "abs_mean", "std", "zero_share", "nonfinite")


def reduce_array(array: NDArray[np.generic], names: Iterable[str]) -> dict[str, float]:
    """Return statistics of an array, computed in float64.

    Args:
        array: any shape; any real, boolean or complex dtype.
        names: which; see `REDUCTIONS`.

    Raises:
        KeyError: there is no reduction of such a name.
    """
    flat = array.reshape(-1)
    # Magnitudes of complex64 are float32; widen first, so that they cannot overflow.
    wide = np.abs(flat.astype(np.complex128)) if flat.dtype.kind == "c" else flat
    x = wide.astype(np.float64)
    return {name: _reduce(x, name) for name in names}


def _reduce(x: NDArray[np.float64], name: str) -> float:
    """Return one statistic of a flat float64 array."""
    compute = _COMPUTE[name]
    if not x.size and name not in ("l2", "nonfinite"):
        return math.nan
    with np.errstate(all="ignore"):
        return float(compute(x))


_COMPUTE: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "min": lambda x: float(np.min(x)),
    "max": lambda x: float(np.max(x)),
    "mean": lambda x: float(np.mean(x)),
    "l2": lambda x: float(np.sqrt(np.sum(x * x))),
    "abs_mean": lambda x: float(np.mean(np.abs(x))),
    "std": lambda x: float(np.std(x)),
    "zero_share": lambda x: float(np.count_nonzero(x == 0) / x.size),
    "nonfinite": lambda x: float(np.count_nonzero(~np.isfinite(x))),
}
