"""Whether the predictions of a loss are certainly no better than guessing."""

from __future__ import annotations

import math

from vinedresser.rules.signals.losses.loss_progress import Stretch
from vinedresser.rules.signals.outcomes.fit import FitSeries, Gain
from vinedresser.rules.signals.outcomes.gain_windows import windows_of

__all__ = ["FEWEST_WINDOWS", "classes_at_chance", "values_at_chance"]

FEWEST_WINDOWS = 3
# Share of the loss of guessing that noise alone does not account for, such as that of clicks, of
# which even good models predict little; and gain of such a model over the last windows.
_LEAST_FALL, _LEAST_ORDER = 0.01, 0.05
# Share of the loss of guessing that a model removes when it begins to memorise rows.
_BY_HEART = 0.1
# Ratio to the loss of guessing above which a model is not at chance, but far away.
_WORSE = 1.5
# Largest growth of the targets, either way, of data: a model that makes its own moves them.
_GROWN = 1.25


def classes_at_chance(
    series: FitSeries, now: Stretch, guessed: float | None, *, learned: bool
) -> bool:
    """Return whether classes are predicted no better than by guessing.

    Args:
        series: predictions and labels of a loss.
        now: last steps of the loss.
        guessed: loss of guessing; None if it is unknown.
        learned: whether the loss has fallen.
    """
    gains = _last_gains(series)
    if series.task not in ("classes", "binary") or not gains:
        return False
    if _mean(gains) > _LEAST_ORDER:
        return False
    return not learned if guessed is None else now.level > (1 - _LEAST_FALL) * guessed


def values_at_chance(
    series: FitSeries,
    now: Stretch,
    guessed: float | None,
    *,
    growth: float,
    by_heart: bool,
    learned: bool,
) -> bool:
    """Return whether numbers are predicted no better than by their mean.

    Args:
        series: predictions and targets of a loss.
        now: last steps of the loss.
        guessed: loss of guessing; None if it is unknown.
        growth: mean square of recent targets around their first mean, relative to the first ones.
        by_heart: whether what a model removes of the loss of guessing is probably memorised, as of
            rows that come again and in which simple models find nothing: then a tenth of it is
            still nothing. Otherwise one hundredth counts, as for classes.
        learned: whether the loss has fallen, which decides if that of guessing is unknown.
    """
    gains = _last_gains(series)
    if series.task != "values" or not gains or not 1 / _GROWN < growth < _GROWN:
        return False
    share, most = (_BY_HEART, _BY_HEART) if by_heart else (_LEAST_FALL, _LEAST_ORDER)
    if not guessed:
        return not learned and _mean(gains) < _LEAST_ORDER
    return _mean(gains) < most and 1 - share < now.level / guessed < _WORSE


def _last_gains(series: FitSeries) -> list[Gain]:
    """Return the gains of the last windows; [] if there are too few."""
    windows = windows_of(series)
    return windows[-FEWEST_WINDOWS:] if len(windows) >= FEWEST_WINDOWS else []


def _mean(gains: list[Gain]) -> float:
    return math.fsum(gain.value for gain in gains) / len(gains)
