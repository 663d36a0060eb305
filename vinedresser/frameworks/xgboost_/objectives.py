"""Custom objectives of XGBoost: what decides about their results, and whether these are finite."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SOURCE", "all_finite", "environment"]

SOURCE = ""
"""Name of the booster in the contents of a snapshot."""

# XGBoost converts gradients to float32.
_LARGEST = float(np.finfo(np.float32).max)


def all_finite(values: NDArray[Any]) -> bool:
    """Return whether all values are finite as float32, the type with which XGBoost computes.

    Args:
        values: any shape, of numbers.
    """
    if not values.size:
        return True
    # Minimum and maximum need no memory. Both are NaN if any value is.
    with np.errstate(invalid="ignore"):
        return bool(values.min() >= -_LARGEST and values.max() <= _LARGEST)


def environment() -> dict[str, Any]:
    """Return what decides about the bits of an objective's result, as plain JSON types."""
    return {"machine": platform.machine()}
