"""Clip numbers so that their squares and sums do not overflow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["bounded", "bounded_array", "finite_scalars"]

# The sum of many squares of it is finite.
_GREATEST = 1e100


def bounded(value: float) -> float:
    """Return a finite value clipped to an absolute value of 1e100."""
    return max(-_GREATEST, min(_GREATEST, value))


def bounded_array(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array with finite values clipped to 1e100; the same array if none is larger.

    Args:
        values: [...], any dtype; only float64 can hold larger values.

    Returns:
        [...], the same shape and dtype.
    """
    if values.dtype != np.float64 or not (abs(values) > _GREATEST).any():
        return values
    return np.where(np.isfinite(values), values.clip(-_GREATEST, _GREATEST), values)


def finite_scalars(scalars: Mapping[str, float]) -> dict[str, float]:
    """Return the finite values by name, `bounded`."""
    return {name: bounded(value) for name, value in scalars.items() if math.isfinite(value)}
