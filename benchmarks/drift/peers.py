"""What else is used to find drift: tests of each column and window, without memory, and ADWIN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.worlds import Values

__all__ = ["Peer", "adwin", "kolmogorov_smirnov", "psi"]

Peer = Callable[[NDArray[np.float64]], bool]
"""Takes a window, float64 [rows, columns], and returns whether it raises an alarm."""


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]


def kolmogorov_smirnov(baseline: Values, level: float) -> Peer:
    """Return a peer that tests each column with an asymptotic two-sample Kolmogorov-Smirnov test.

    Args:
        baseline: float64 [rows, columns].
        level: of each test.
    """
    sorted_columns = [np.sort(_finite(one)) for one in baseline.T]
    bound = math.sqrt(-math.log(level / 2) / 2)

    def alarms(window: NDArray[np.float64]) -> bool:
        for known, column in zip(sorted_columns, window.T, strict=True):
            values = np.sort(_finite(column))
            if not len(values):
                continue
            distance = max(
                abs(
                    np.searchsorted(known, values, side) / len(known)
                    - np.searchsorted(values, values, side) / len(values)
                ).max()
                for side in ("left", "right")
            )
            if distance > bound * math.sqrt(1 / len(known) + 1 / len(values)):
                return True
        return False

    return alarms


def psi(baseline: Values, limit: float = 0.2) -> Peer:
    """Return a peer that compares population stability indices by deciles with a limit.

    Args:
        baseline: float64 [rows, columns].
        limit: usual one.
    """
    edges = [np.unique(np.quantile(_finite(one), np.arange(0.1, 0.95, 0.1))) for one in baseline.T]

    def shares(values: NDArray[np.float64], at: NDArray[np.float64]) -> NDArray[np.float64]:
        known = _finite(values)
        counts = np.bincount(np.searchsorted(at, known), minlength=len(at) + 1)
        return np.maximum(counts / max(len(known), 1), 1e-4)

    expected = [shares(one, at) for one, at in zip(baseline.T, edges, strict=True)]

    def alarms(window: NDArray[np.float64]) -> bool:
        for column, at, before in zip(window.T, edges, expected, strict=True):
            after = shares(column, at)
            if ((after - before) * np.log(after / before)).sum() > limit:
                return True
        return False

    return alarms


def adwin(columns: int) -> Peer | None:
    """Return river's ADWIN for each column with its defaults; None if it is not installed."""
    try:
        from river import drift
    except ImportError:
        return None
    detectors: list[Any] = [drift.ADWIN() for _ in range(columns)]

    def alarms(window: NDArray[np.float64]) -> bool:
        found = False
        for detector, column in zip(detectors, window.T, strict=True):
            for value in _finite(column).tolist():
                detector.update(value)
                found |= detector.drift_detected
        return found

    return alarms
