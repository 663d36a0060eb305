"""Which steps have a symptom, and which change proves its cause."""

from __future__ import annotations

import math
from statistics import fmean, pstdev, stdev

from vinedresser.replay.what_if.results import Course, tenth

__all__ = ["cures", "falls", "learns_only", "stands_still", "symptom_of"]

# Share of the loss by which it must change to rise or fall, and by which a cure must lower it.
_CHANGES = 0.05
_CURES = 0.3
# A loss that falls by less has fallen little.
_FALLS = 0.5
# Largest change of a loss that stands still, as a share of its deviation over batches, and largest
# of its weights in a step, as a share of their norm: a tenth of a usual one.
_STILL_LOSS = 0.1
_STILL_PACE = 1e-4
# Minimum gap to the losses with shuffled labels, in standard errors and as a share of the loss, and
# maximum gap without the change, as a share of that with it.
_ERRORS = 5.0
_LEARNS = 0.01
_LITTLE = 0.2


def symptom_of(unchanged: Course, before: float, shuffled: Course | None) -> str:
    """Return the symptom of the unchanged steps in words; "" if there is none.

    Args:
        before: loss before the first, with the batches of the last tenth of the steps.
        shuffled: the steps with shuffled labels, or None.
    """
    if unchanged.failed:
        return f"the step fails: {unchanged.failed}"
    if unchanged.broke is not None:
        return f"not finite at step {unchanged.broke}"
    if unchanged.out_of_time:
        return ""
    if not falls(unchanged, before):
        rises = unchanged.last - before > _CHANGES * _scale(before)
        way = f"rises from {before:.4g} to {unchanged.last:.4g}" if rises else "does not fall"
        return f"the loss {way}"
    if shuffled is not None and _learns_nothing(unchanged, shuffled):
        return f"the loss falls to {unchanged.last:.4g}, no lower than with shuffled labels"
    little = unchanged.last - before > -_FALLS * _scale(before)
    return f"the loss falls only from {before:.4g} to {unchanged.last:.4g}" if little else ""


def falls(course: Course, before: float) -> bool:
    """Return whether the loss of completed steps falls.

    Args:
        before: loss before the first, with the batches of the last tenth of the steps.
    """
    return course.whole and course.last < before - _CHANGES * _scale(before)


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


def cures(course: Course, before: float, unchanged: Course, shuffled: Course | None) -> bool:
    """Return whether a symptom is gone.

    Values that were not finite are cured by finite ones whose loss does not rise; a loss that rose
    or stood, by one that falls clearly.

    Args:
        course: the steps with a change.
        before: loss before the first, with the batches of the last tenth of the steps.
        unchanged: the steps without it.
        shuffled: the steps with shuffled labels, or None.
    """
    if not course.whole:
        return False
    if shuffled is not None and _learns_nothing(unchanged, shuffled):
        # What falls is learned without the inputs.
        before = shuffled.last
    first = before if math.isfinite(before) else course.losses[0]
    scale = _scale(first)
    if not unchanged.whole:
        return course.last <= first + _CHANGES * scale
    gap = min(first, unchanged.last) - course.last
    if falls(unchanged, first):
        # It falls: a cure must be clear beside the noise of small losses.
        last = unchanged.losses[-tenth(len(unchanged.losses)) :]
        if gap < max(3 * (max(last) - min(last)), abs(unchanged.last) / 2):
            return False
    return gap >= _CURES * scale


def learns_only(course: Course, control: Course, unchanged: Course, shuffled: Course) -> bool:
    """Return whether a training learns from its inputs, and does not without a change.

    With shuffled labels there is nothing to learn from the inputs. What is learned in spite of that
    is the same in both. So the losses of the second half of the steps are compared batch by batch:
    their mean difference is what is learned from the inputs.

    Args:
        course: the steps with a change.
        control: the steps with this change and shuffled labels.
        unchanged: the steps without it.
        shuffled: the steps with shuffled labels only.
    """
    if not all(one.whole for one in (course, control, unchanged, shuffled)):
        return False
    gaps, before = _gaps(course, control), _gaps(unchanged, shuffled)
    learned = fmean(gaps)
    error = stdev(gaps) / math.sqrt(len(gaps))
    return (
        learned > max(_ERRORS * error, _LEARNS * _scale(control.last))
        and fmean(before) < _LITTLE * learned
        and course.last < min(unchanged.last, shuffled.last)
    )


def _gaps(course: Course, shuffled: Course) -> list[float]:
    half = len(course.losses) // 2
    pairs = zip(course.losses[half:], shuffled.losses[half:], strict=True)
    return [other - one for one, other in pairs]


def _learns_nothing(unchanged: Course, shuffled: Course) -> bool:
    """Return whether a loss is no lower than with shuffled labels.

    A loss that falls from a high level to that of the best constant prediction has learned nothing
    from the inputs. With shuffled labels, there is nothing else to learn, if no batch is repeated.

    Args:
        shuffled: the steps with shuffled labels.
    """
    if not (unchanged.whole and shuffled.whole):
        return False
    return not falls(unchanged, shuffled.last)


def _scale(loss: float) -> float:
    return max(abs(loss), 1e-12)
