"""AUTOTRAINER (Zhang et al., ICSE 2021), with its published thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.faults.history import Epoch
from benchmarks.faults.peers.evidence import Alarm, Evidence

__all__ = [
    "Gradients",
    "alarms_of",
    "alarms_of_epochs",
    "dying",
    "exploding",
    "oscillating",
    "slow",
    "vanishing",
]

_TARGET_ACCURACY = 0.6
_GAIN = 0.01
_SWING = 0.03
_SWING_SHARE = 0.2
_SLOW_AFTER = 0.3


class Gradients(NamedTuple):
    """Gradients of the weights of L layers, in model order, at S steps.

    Attributes:
        steps: int64 [S].
        norms: L2 norms, float64 [S, L].
        zeros: shares of entries that are exactly zero, float64 [S, L].
        sizes: number of entries of each, [L].
    """

    steps: NDArray[np.int64]
    norms: NDArray[np.float64]
    zeros: NDArray[np.float64]
    sizes: Sequence[int]


def alarms_of(evidence: Evidence) -> list[Alarm]:
    """Return its alarms, checked once per epoch; R² replaces accuracy in regression."""
    names, steps, norms = evidence.gradients("l2")
    _, _, zeros = evidence.gradients("zero_share")
    model = evidence.trained.model
    sizes = [model.get_parameter(name.partition("/")[2]).numel() for name in names]
    epochs = evidence.trained.history.epochs
    return alarms_of_epochs(epochs, Gradients(steps, norms, zeros, sizes))


def alarms_of_epochs(epochs: Sequence[Epoch], gradients: Gradients) -> list[Alarm]:
    """Return its alarms after each epoch.

    The gradient checks count while the training accuracy is below 0.6, or has never gained 0.01
    between epochs.
    """
    steps, norms, zeros, sizes = gradients
    alarms: list[Alarm] = []
    for number, epoch in enumerate(epochs, 1):
        so_far = epochs[:number]
        place = int(np.searchsorted(steps, epoch.step, side="left")) - 1
        symptoms = []
        if place >= 0 and _unsatisfied(so_far):
            first, last = float(norms[place, 0]), float(norms[place, -1])
            checks = {
                "vanishing gradient": vanishing(first, last),
                "exploding gradient": exploding(first, last, epoch.loss),
                "dying relu": dying(zeros[place].tolist(), sizes),
            }
            symptoms += [word for word, found in checks.items() if found]
        if oscillating([one.score for one in so_far]):
            symptoms.append("oscillating loss")
        if slow([one.score for one in so_far], len(epochs)):
            symptoms.append("slow convergence")
        alarms += [Alarm(epoch.step, word) for word in symptoms]
    return alarms


def vanishing(first: float, last: float) -> bool:
    """Return whether the gradient norms of the first and last layer indicate vanishing."""
    return first < 1e-4 and (first / last if last else math.inf) < 1e-3


def exploding(first: float, last: float, loss: float) -> bool:
    """Return whether the gradient norms indicate explosion, or a value is not finite."""
    if not all(map(math.isfinite, (first, last, loss))):
        return True
    return bool(last) and first / last > 70


def dying(zero_shares: Sequence[float], sizes: Sequence[int]) -> bool:
    """Return whether 70 % of all gradient entries are exactly zero.

    Args:
        zero_shares: share of zeros in each layer's gradient.
        sizes: number of entries of each gradient.
    """
    zeros = sum(share * size for share, size in zip(zero_shares, sizes, strict=True))
    return zeros >= 0.7 * sum(sizes)


def oscillating(scores: Sequence[float]) -> bool:
    """Return whether the accuracy drops by 0.03 in a fifth of the epochs."""
    falls = [before - after for before, after in pairwise(scores)]
    return len(falls) >= 5 and sum(f >= _SWING for f in falls) >= _SWING_SHARE * len(scores)


def slow(scores: Sequence[float], epochs: int) -> bool:
    """Return whether the accuracy has never gained 0.01 after 30 % of the epochs."""
    return len(scores) > 1 and len(scores) >= _SLOW_AFTER * epochs and _best_gain(scores) < _GAIN


def _unsatisfied(epochs: Sequence[Epoch]) -> bool:
    scores = [epoch.score for epoch in epochs]
    return scores[-1] < _TARGET_ACCURACY or _best_gain(scores) < _GAIN


def _best_gain(scores: Sequence[float]) -> float:
    gains = (after - before for before, after in pairwise(scores))
    return max(gains, default=0.0)
