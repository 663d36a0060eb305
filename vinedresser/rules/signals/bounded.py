"""Numbers of any size, cut so that one can calculate with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["bounded", "bounded_array"]

# The square of it, and the sum of many such, fit into a float.
_GREATEST = 1e100


def bounded(value: float) -> float:
    """Return a finite value, cut at 1e100 in size: beyond, a difference means nothing."""
    return max(-_GREATEST, min(_GREATEST, value))


def bounded_array(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array with its finite numbers cut likewise; the same one where none is so large.

    Args:
        values: of any dtype; only float64 can hold such numbers.
    """
    if values.dtype != np.float64 or not (abs(values) > _GREATEST).any():
        return values
    return np.where(np.isfinite(values), values.clip(-_GREATEST, _GREATEST), values)
