"""Means and standard deviations of the model's inputs by channel, over a training's steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALL", "InputHistory", "Sample", "Shift", "shift"]

_Array = NDArray[np.float64]

ALL = -1
"""Number of the channel that stands for all of them."""

# Numbers that are kept for each input, and samples at least and at most.
_NUMBERS = 1 << 18
_FEWEST_KEPT, _MOST_KEPT = 16, 512
# Samples to compare, on either side.
_FEWEST = 4
# Change in standard errors, which holds for the largest of a thousand channels as well.
_SURE = 8.0


class Sample(NamedTuple):
    """The inputs of one batch.

    Attributes:
        step: train step.
        means, stds: float64 [1 + channels]; the first is over all channels.
    """

    step: int
    means: _Array
    stds: _Array


class Shift(NamedTuple):
    """How the inputs of some samples differ from those of others.

    Attributes:
        statistic: "mean" or "std", whichever changed more.
        channel: number of the channel that changed most, or `ALL`.
        before, after: the statistic of that channel.
        distance: change of the mean in standard deviations, or the factor between the standard
            deviations, at least 1.
        channels: share of the channels that changed by as much as was asked for.
    """

    statistic: Literal["mean", "std"]
    channel: int
    before: float
    after: float
    distance: float
    channels: float


class InputHistory:
    """The samples at one input, in bounded memory: the latest ones."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, step: int, means: _Array, stds: _Array) -> None:
        """Keep a sample; ignore one that is not finite. One with other channels replaces all.

        Args:
            step: train step.
            means: float64 [channels].
            stds: float64 [channels].
        """
        if not means.size or not (np.isfinite(means).all() and np.isfinite(stds).all()):
            return
        whole = float(np.sqrt(np.mean(stds**2) + means.var()))
        sample = Sample(step, np.append(means.mean(), means), np.append(whole, stds))
        if self._samples and self._samples[0].means.shape != sample.means.shape:
            self._samples.clear()
        self._samples.append(sample)
        most = min(max(_NUMBERS // sample.means.size, _FEWEST_KEPT), _MOST_KEPT)
        while len(self._samples) > most:
            self._samples.popleft()

    def between(self, first: float, last: float) -> list[Sample]:
        """Return the samples of steps from ``first`` to ``last``, both included."""
        return [sample for sample in self._samples if first <= sample.step <= last]


def shift(
    before: Sequence[Sample], after: Sequence[Sample], *, distance: float, factor: float
) -> Shift | None:
    """Return the largest change between some samples and others; None if there is none.

    A mean has changed if it moved by ``distance`` pooled standard deviations of the values, and a
    standard deviation if it changed by ``factor``; either by eight standard errors as well, which
    the spread between samples gives. Inputs that wander from batch to batch have a large spread.

    Args:
        before: samples at an input; fewer than four show no change.
        after: later samples, likewise.
        distance: in standard deviations.
        factor: above 1.
    """
    if min(len(before), len(after)) < _FEWEST or before[0].means.shape != after[0].means.shape:
        return None
    means = [np.stack([sample.means for sample in samples]) for samples in (before, after)]
    stds = [np.stack([sample.stds for sample in samples]) for samples in (before, after)]
    pooled = np.sqrt(
        sum((one**2).mean(0) + mean.var(0) for one, mean in zip(stds, means, strict=True)) / 2
    )
    moved = _ratio(np.abs(means[1].mean(0) - means[0].mean(0)), pooled)
    moved[_errors(*means) < _SURE] = 0.0
    # Of channels that vary on both sides.
    varies = (stds[0] > 0).all(0) & (stds[1] > 0).all(0)
    logs = [np.log(np.where(varies, one, 1.0)) for one in stds]
    widened = np.abs(logs[1].mean(0) - logs[0].mean(0))
    widened[_errors(*logs) < _SURE] = 0.0
    by_mean, by_std = moved / distance, widened / math.log(factor)
    most = np.maximum(by_mean, by_std)
    at = int(most.argmax())
    if most[at] < 1:
        return None
    of_mean = bool(by_mean[at] >= by_std[at])
    values = means if of_mean else stds
    return Shift(
        "mean" if of_mean else "std",
        at - 1,
        float(values[0][:, at].mean()),
        float(values[1][:, at].mean()),
        float(moved[at]) if of_mean else math.exp(float(widened[at])),
        float((most[1:] >= 1).mean()),
    )


def _errors(before: _Array, after: _Array) -> _Array:
    """Return the differences of means over samples in standard errors, [1 + channels]."""
    variances = [one.var(0, ddof=1) for one in (before, after)]
    # The larger one, since a few samples may agree by chance.
    spread = np.maximum(*variances) * (1 / len(before) + 1 / len(after))
    return _ratio(np.abs(after.mean(0) - before.mean(0)), np.sqrt(spread))


def _ratio(values: _Array, units: _Array) -> _Array:
    """Return values in some units; 0 / 0 is 0, and anything else / 0 is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(values / units, nan=0.0, posinf=math.inf)
