"""The smallest change that a monitor would have found by now.

A change of the shares of the bins by a given size, from the first window on, gives expected counts,
and these the evidence that the bets would have had. Twice the log of a likelihood ratio is about a
squared standardized effect, so that its root varies with a standard deviation of 1; a change counts
as found if the root is still enough when it is less than expected by as many standard deviations as
the probability demands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.bins import BINS, Edges
from vinedresser.drift.evidence.changes import share_of
from vinedresser.drift.evidence.likelihood import Urn, log_ratio

__all__ = ["FOUND", "Ladder", "Sensitivity", "number_ladder", "seems_at_least", "share_ladder"]

FOUND = 0.9
"""Probability with which a change of the size would have been found."""

_QUANTILE = 1.2816
_STEPS = 28
_SMALLEST = 0.01
_LARGEST_SHIFT = 10.0
# Infinite values count as this.
_MOST = 1e300
# Rows of a sample that are moved, at most.
_ROWS = 600

# Returns the bins of values [rows], uint8 [rows].
_Binning = Callable[[NDArray[np.float64]], NDArray[np.uint8]]


class Ladder(NamedTuple):
    """What the shares of the bins of a stream become if it changes, for growing sizes.

    Attributes:
        sizes: float64 [ways, steps], ascending, for each way in which the stream may change;
            infinite if it cannot.
        moved: float64 [ways, steps, BINS], by how much the shares of the bins change.
    """

    sizes: NDArray[np.float64]
    moved: NDArray[np.float64]


class Sensitivity:
    """The smallest change that would have been found, of each stream.

    Args:
        edges: bins of the streams.
        needed: evidence that raises an alarm, in nats.
    """

    def __init__(self, edges: Edges, ladders: Sequence[Ladder], needed: float) -> None:
        self._needed = needed
        self._sizes = np.stack([ladder.sizes for ladder in ladders], axis=-1)
        moved = np.stack([ladder.moved for ladder in ladders], axis=2)
        # A change of ranks is the same in all phases, and has as much evidence as in a single one.
        gaps = edges.gaps.sum(1)
        # By ways, steps, streams and bins.
        shares = (gaps / gaps.sum(1, keepdims=True) + moved).clip(0.0)
        self._shares = shares / shares.sum(-1, keepdims=True)
        self._gaps = np.broadcast_to(gaps, shares.shape)

    def smallest(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the smallest size, float64 [streams], infinite if none would have been found.

        Args:
            rows: float64 [streams], number of values that were used.
        """
        counts = np.rint(self._shares * rows[:, None])
        urns = Urn(self._gaps.reshape(-1, 1, BINS))
        before = urns.seen
        urns.add(counts.reshape(urns.total.shape))
        ratios = log_ratio(before, urns.seen).reshape(counts.shape[:3])
        evidence, most = ratios + math.log(share_of(0)), _most(self._gaps, counts)
        price = np.maximum(most - evidence, 0.0)
        margin = np.sqrt(2 * most) - _QUANTILE - np.sqrt(2 * (self._needed + price))
        found = np.full(len(rows), math.inf)
        for stream in np.flatnonzero(rows):
            sizes = self._sizes[:, :, stream]
            ways = [_first(one, at) for one, at in zip(margin[:, :, stream], sizes, strict=True)]
            size = max((one for one in ways if math.isfinite(one)), default=math.inf)
            # A change that no size of it would have shown matters if it can be as large.
            hidden = [at[-1] for one, at in zip(ways, sizes, strict=True) if math.isinf(one)]
            found[stream] = math.inf if any(one > size for one in hidden) else size
        return found


def _first(margin: NDArray[np.float64], sizes: NDArray[np.float64]) -> float:
    """Return the size from which on the margin is positive, interpolated; infinite if none."""
    if margin[-1] < 0:
        return math.inf
    if (margin >= 0).all():
        return float(sizes[0])
    step = len(margin) - int(np.argmax(margin[::-1] < 0))
    part = margin[step - 1] / (margin[step - 1] - margin[step])
    return float(sizes[step - 1] + part * (sizes[step] - sizes[step - 1]))


def seems_at_least(
    size: float, rows: NDArray[np.float64], baseline: NDArray[np.float64], deviation: float
) -> NDArray[np.float64]:
    """Return the change that is estimated as at least some size, float64 [streams].

    Args:
        size: the size; 0.0: any.
        rows: float64 [streams], values since the change.
        baseline: float64 [streams], values before it.
        deviation: standard deviation of a value, in units of the size.
    """
    error = deviation * np.sqrt(1 / np.maximum(rows, 1) + 1 / np.maximum(baseline, 1))
    return np.asarray(size + _QUANTILE * error * (size > 0))


def number_ladder(
    sample: NDArray[np.float64], binning: _Binning, unit: float, *, discrete: bool
) -> Ladder:
    """Return shifts of numbers, up and down.

    Args:
        sample: values of the baseline, float64 [rows]; NaN is missing.
        binning: bins of values.
        unit: a standard deviation, in which sizes are given.
        discrete: whether values are tied, so that a shift makes some of them more frequent instead
            of moving all.
    """
    known = np.sort(sample[~np.isnan(sample)]).clip(-_MOST, _MOST)
    share = len(known) / max(len(sample), 1)
    if len(known) > _ROWS:
        known = known[np.linspace(0, len(known) - 1, _ROWS).round().astype(int)]
    if not len(known) or known[0] == known[-1]:
        return _unable()
    sizes = np.geomspace(_SMALLEST, _LARGEST_SHIFT, _STEPS)
    now = _bin_shares(binning(known))
    reached, moved = [], []
    for way in (1.0, -1.0):
        at = sizes
        if discrete:
            at, found = _tilted(known, binning, way * sizes, unit)
        else:
            found = np.array([_bin_shares(binning(known + way * size * unit)) for size in sizes])
        reached.append(at)
        moved.append(share * (found - now))
    return Ladder(np.array(reached), np.array(moved))


def share_ladder(
    most: float, from_value: float, to_values: tuple[float, float], binning: _Binning
) -> Ladder:
    """Return changes of shares: rows with one value that have another one instead.

    Args:
        most: share of the rows with the value that becomes rarer.
        to_values: those of which one becomes more frequent.
        binning: bins of values.
    """
    if not most:
        return _unable()
    now, *later = (_bin_shares(binning(np.full(_ROWS, one))) for one in (from_value, *to_values))
    sizes = np.geomspace(min(_SMALLEST, most) / 5, most, _STEPS)
    moved = [sizes[:, None] * (one - now) for one in later]
    return Ladder(np.array([sizes, sizes]), np.array(moved))


def _unable() -> Ladder:
    return Ladder(np.full((2, _STEPS), math.inf), np.zeros((2, _STEPS, BINS)))


def _tilted(
    known: NDArray[np.float64], binning: _Binning, sizes: NDArray[np.float64], unit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return shares of exponentially tilted values, and by how much their mean has moved.

    Args:
        known: values, float64 [rows], ascending.
        sizes: float64 [steps], wanted, negative for a shift down.
    """
    with np.errstate(over="ignore"):
        deviations = ((known - known[len(known) // 2]) / unit).clip(-20, 20)
    deviations -= deviations.mean()
    places = np.eye(BINS)[binning(known)]
    moved, shares = [], []
    for size in sizes:
        weights = np.exp(size * deviations - (size * deviations).max())
        weights /= weights.sum()
        moved.append(abs(float(weights @ deviations)))
        shares.append(weights @ places)
    return np.array(moved), np.array(shares)


def _bin_shares(bins: NDArray[np.uint8]) -> NDArray[np.float64]:
    return np.bincount(bins, minlength=BINS) / len(bins)


def _most(gaps: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of the largest likelihood ratio of two samples against one, in nats.

    Args:
        gaps: float64 [..., BINS].
        counts: float64 [..., BINS].
    """
    rows, more = gaps.sum(-1, keepdims=True), counts.sum(-1, keepdims=True)
    shares = (gaps + counts) / np.maximum(rows + more, 1)
    before = gaps / np.where(gaps > 0, shares * rows, 1.0)
    after = counts / np.where(counts > 0, shares * np.maximum(more, 1), 1.0)
    parts = gaps * np.log(np.where(gaps > 0, before, 1.0))
    parts += counts * np.log(np.where(counts > 0, after, 1.0))
    return np.asarray(np.maximum(parts.sum(-1), 0.0))
