"""Which steps have a symptom, and which change proves its cause."""

from __future__ import annotations

import math
from statistics import pstdev

from vinedresser.replay.what_if.results import Course, tenth

__all__ = ["cures", "stands_still", "symptom_of"]

# Share of the loss by which it must change to rise or fall, and by which a cure must lower it.
_CHANGES = 0.05
_CURES = 0.3
# A loss that falls by less has fallen little.
_FALLS = 0.5
# Largest change of a loss that stands still, as a share of its deviation over batches, and largest
# of its weights in a step, as a share of their norm: a tenth of a usual one.
_STILL_LOSS = 0.1
_STILL_PACE = 1e-4


def symptom_of(unchanged: Course, before: float) -> str:
    """Return the symptom of the unchanged steps in words; "" if there is none.

    Args:
        unchanged: the steps.
        before: loss before the first, with the batches of the last tenth of the steps.
    """
    if unchanged.failed:
        return f"the step fails: {unchanged.failed}"
    if unchanged.broke is not None:
        return f"not finite at step {unchanged.broke}"
    if unchanged.out_of_time:
        return ""
    change, scale = unchanged.last - before, _scale(before)
    if change > _CHANGES * scale:
        return f"the loss rises from {before:.4g} to {unchanged.last:.4g}"
    if change > -_CHANGES * scale:
        return "the loss does not fall"
    little = change > -_FALLS * scale
    return f"the loss falls only from {before:.4g} to {unchanged.last:.4g}" if little else ""


def stands_still(unchanged: Course, before: float, batches: int, pace: float) -> bool:
    """Return whether a training practically stands still, so that its learning rate may be too low.

    Only then, a higher rate can prove something. Almost any training falls faster for some steps if
    its rate is ten times as high, most of all a healthy one at its beginning; and where the weights
    move and the loss does not, something else is wrong, such as the scale of the targets. So both
    stand still: the loss changes by less than a tenth of its deviation over batches, which nobody
    could see in its curve, and the weights move in a step by less than a ten-thousandth of their
    norm, a tenth of a usual step. The deviation of a single batch is not known.

    Args:
        unchanged: the steps.
        before: loss before the first, with the batches of the last tenth of the steps.
        batches: number of different batches.
        pace: share of their norm by which the weights moved in a step.
    """
    if not unchanged.whole or batches < 2:
        return False
    change, noise = abs(unchanged.last - before), pstdev(unchanged.losses)
    return change < _STILL_LOSS * noise and pace < _STILL_PACE


def cures(course: Course, before: float, unchanged: Course) -> bool:
    """Return whether a symptom is gone.

    Values that were not finite are cured by finite ones whose loss does not rise; a loss that rose
    or stood, by one that falls clearly.

    Args:
        course: the steps with a change.
        before: loss before the first, with the batches of the last tenth of the steps.
        unchanged: the steps without it.
    """
    if not course.whole:
        return False
    first = before if math.isfinite(before) else course.losses[0]
    scale = _scale(first)
    if not unchanged.whole:
        return course.last <= first + _CHANGES * scale
    gap = min(first, unchanged.last) - course.last
    if unchanged.last < first - _CHANGES * scale:
        # It falls: a cure must be clear beside the noise of small losses.
        last = unchanged.losses[-tenth(len(unchanged.losses)) :]
        if gap < max(3 * (max(last) - min(last)), abs(unchanged.last) / 2):
            return False
    return gap >= _CURES * scale


def _scale(loss: float) -> float:
    return max(abs(loss), 1e-12)
