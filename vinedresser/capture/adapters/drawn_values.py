"""Whether values are as they were drawn at random, from a known distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST", "from_normal", "from_uniform"]

FEWEST = 64
"""Minimum number of values that tell their distribution."""
# Standard errors by which a statistic of drawn values may differ from its expectation.
_SURE = 4.5
# The largest of n values from 0 to 1 is below 1 - 12/n with a probability of exp(-12).
_GAP = 12.0
# Rounding of float32, relatively.
_ROUNDING = 1e-6


def from_uniform(values: NDArray[Any], bound: float) -> bool:
    """Return whether values seem to be drawn uniformly from -bound to bound.

    Their mean and variance must be those of the distribution within 4.5 standard errors, and the
    largest must be next to the bound, but not beyond it. A few steps of training break that.

    Args:
        values: any shape, at least `FEWEST` finite floats.
        bound: positive.
    """
    if len(flat := _flat(values)) < FEWEST:
        return False
    most = float(np.abs(flat).max()) / bound
    if not 1 - _GAP / len(flat) <= most <= 1 + _ROUNDING:
        return False
    # The fourth moment of a uniform distribution is 9/5 of its squared variance.
    return _as_expected(flat, bound**2 / 3, 1.8)


def from_normal(values: NDArray[Any]) -> bool:
    """Return whether values seem to be drawn from the standard normal distribution.

    Their mean, variance and fourth moment must be those of the distribution within 4.5 standard
    errors.

    Args:
        values: any shape, at least `FEWEST` finite floats.
    """
    if len(flat := _flat(values)) < FEWEST:
        return False
    # The standard deviation of x⁴ is the root of 105 - 9.
    error = math.sqrt(96 / len(flat))
    return _as_expected(flat, 1.0, 3.0) and abs(float((flat**4).mean()) - 3) <= _SURE * error


def _flat(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the values as one row; none if any is not finite."""
    flat = values.astype(np.float64).ravel()
    return flat if np.isfinite(flat).all() else flat[:0]


def _as_expected(values: NDArray[np.float64], variance: float, fourth: float) -> bool:
    """Return whether mean and mean square are those of a symmetric distribution around 0.

    Args:
        values: [values].
        variance: variance of the distribution.
        fourth: its fourth moment as a multiple of the squared variance.
    """
    mean = abs(float(values.mean())) <= _SURE * math.sqrt(variance / len(values))
    error = variance * math.sqrt((fourth - 1) / len(values))
    return mean and abs(float((values**2).mean()) - variance) <= _SURE * error
