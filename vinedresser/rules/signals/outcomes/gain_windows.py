"""The gain of a model over guessing in windows of samples, and its trend."""

from __future__ import annotations

import math

import numpy as np

from vinedresser.rules.signals.outcomes.fit import FitSeries, Gain

__all__ = ["projected", "stand_below", "windows_of"]

_SURE = 2.0


def windows_of(series: FitSeries) -> list[Gain]:
    """Return the gains of windows of samples without overlap, oldest first."""
    count = series.samples() // series.window
    gains = (series.gain(before=series.window * place) for place in range(count))
    return [gain for gain in gains if gain is not None][::-1]


def stand_below(bound: float, first: Gain, last: Gain) -> bool:
    """Return whether two gains are certainly below a bound and the last is no better."""
    error = _SURE * math.hypot(first.error, last.error)
    below = first.most < bound and last.most < bound
    return below and last.value - first.value <= error


def projected(windows: list[Gain], end: float) -> float:
    """Return an upper bound of the final gain, from the trend of the last windows.

    The trend is a line through the last half of the windows (at least four); two standard errors
    are added to its slope.

    Args:
        windows: gains, oldest first.
        end: last step of the training.
    """
    recent = windows[-max(4, len(windows) // 2) :]
    gains = np.array([gain.value for gain in recent])
    steps = np.array([gain.step for gain in recent], np.float64)
    ahead = max(end - float(steps[-1]), 0.0)
    steps -= steps.mean()
    spread = float((steps**2).sum())
    slope = float((steps * gains).sum()) / spread
    residual = gains - gains.mean() - slope * steps
    error = math.sqrt(float((residual**2).sum()) / max(len(gains) - 2, 1) / spread)
    return float(gains[-1]) + max(slope + _SURE * error, 0.0) * ahead
