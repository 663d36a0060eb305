"""How many rows apart values have to be to be nearly independent, estimated from their order.

Requests that follow each other are often alike: they come from one session, or from one time of the
day. Then the urn does not hold for all rows, but it nearly does for rows that are far enough apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.bins import BINS
from vinedresser.drift.evidence.changes import array_of

__all__ = ["SHARED", "TOO_FAR", "Dependence"]

TOO_FAR = 1 << 20
"""Distance of a stream whose rows depend on each other over too many rows."""

SHARED = 0.75
"""Quantile of the distances of columns that is the distance of all: rows are alike as a whole."""

# Number of successive rows from which autocorrelations are estimated, at least.
_SEGMENT = 200
# First lags of the spans of lags over which correlations are averaged.
_SPANS = np.array([1, 2, 3, 5, 9, 17, 33])
_LAGS = 64
_LENGTHS = np.diff([*_SPANS, _LAGS + 1])
# Segments go to these in turn, and their median counts: a change within a segment looks like
# dependence, but is in one of them only.
_GROUPS = 5
# How much more a median of groups varies than the mean, if one of them has such a change.
_MEDIAN = 1.6
# Correlation times that a segment has to contain for them to be estimated.
_TIMES = 5


def _scores() -> NDArray[np.float32]:
    """Return what is correlated, [scores, BINS]: location, spread, and whether it is rare."""
    middle = (np.arange(BINS) + 0.5) / BINS - 0.5
    spread = abs(middle)
    return np.stack([middle, spread, (spread > 0.3).astype(float)]).astype(np.float32)


_SCORES = _scores()


class Dependence:
    """Autocorrelations of several streams, and the distances of nearly independent rows.

    Args:
        streams: number of streams.
        errors: number of standard errors by which the autocorrelations of independent rows exceed 0
            by chance, at most.
    """

    def __init__(self, streams: int, errors: float = 3.0) -> None:
        self._errors = errors
        self._pending = np.empty((0, streams), np.uint8)
        # Sums of products of centred scores: variance, then spans; and the numbers of products.
        self._sums = np.zeros((_GROUPS, len(_SCORES), streams, len(_SPANS) + 1))
        self._products = np.zeros((_GROUPS, len(_SPANS) + 1))
        self._rows = self._segments = 0
        # By the segments so far: correlations, [scores, streams, spans], and distances.
        self._usual = np.zeros((len(_SCORES), streams, len(_SPANS)))
        self._distances = np.ones(streams, np.int64)
        self._stale = False

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self._rows + len(self._pending)

    def update(self, bins: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Add successive rows.

        Args:
            bins: uint8 [rows, streams], less than BINS.

        Returns:
            Number of rows between rows that are nearly independent, int64 [streams]: 1 if all are,
            `TOO_FAR` if none in reach are.
        """
        self._learn()
        self._pending = np.concatenate([self._pending, bins])
        rows = len(self._pending)
        if rows < 3:
            return self._distances
        sums, products = _products(self._pending)
        now = _correlations(sums, products, rows)
        # As known, unless these rows clearly depend on each other more.
        usual = self._usual - (_time(self._usual)[..., None] - 1) / rows
        more = _exceeds(now, usual, rows, self._errors).any(0)
        distances = self._distances
        if more.any():
            at_most = _distances(now[:, more], rows, rows, self._errors)
            distances = distances.copy()
            distances[more] = np.maximum(distances[more], at_most)
        if rows >= _SEGMENT:
            group = self._segments % _GROUPS
            self._sums[group] += sums
            self._products[group] += products
            self._rows, self._segments = self.rows, self._segments + 1
            self._pending = self._pending[:0]
            self._stale = True
        return distances

    def distances(self) -> NDArray[np.int64]:
        """Return the distances by the rows so far, except the last few; see `update`."""
        self._learn()
        return self._distances

    def _learn(self) -> None:
        """Estimate correlations and distances from the segments so far, if there are new ones."""
        if not self._stale:
            return
        self._stale = False
        segment, errors = self._rows / self._segments, self._errors
        if self._segments < _GROUPS:
            found = _correlations(self._sums.sum(0), self._products.sum(0), segment)
        else:
            groups = _correlations(self._sums, self._products[:, None, None], segment)
            found, errors = np.median(groups, axis=0), _MEDIAN * errors
        self._usual = _unbiased(found, segment)
        self._distances = _distances(found, self._rows, segment, errors)

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "pending": self._pending.tolist(),
            "sums": self._sums.tolist(),
            "products": self._products.tolist(),
            "rows": self._rows,
            "segments": self._segments,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many streams.
        """
        pending = array_of(state, "pending", (len(state["pending"]), self._sums.shape[2]))
        if pending.size and not (pending.min() >= 0 and pending.max() < BINS):
            raise ValueError(f"pending: expected bins from 0 to {BINS - 1}")
        self._pending = pending.astype(np.uint8)
        self._sums = array_of(state, "sums", self._sums.shape)
        self._products = array_of(state, "products", self._products.shape)
        self._rows, self._segments = int(state["rows"]), int(state["segments"])
        self._stale = self._segments > 0


def _products(bins: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sums of products of centred scores, [scores, streams, 1 + spans], and numbers."""
    rows = len(bins)
    scores = _SCORES[:, bins.T]
    scores -= scores.mean(-1, keepdims=True)
    # A product of small primes for most numbers of rows, which is fast.
    size = -(-(rows + _LAGS) // _LAGS) * _LAGS
    spectrum = np.fft.rfft(scores, size)
    power = spectrum.real**2 + spectrum.imag**2
    lags = np.fft.irfft(power, size)[..., : _LAGS + 1]
    starts = np.concatenate([[0], _SPANS])
    numbers = np.maximum(rows - np.arange(_LAGS + 1.0), 0.0)
    sums = np.add.reduceat(lags, starts, axis=-1, dtype=np.float64)
    return sums, np.add.reduceat(numbers, starts)


def _correlations(
    sums: NDArray[np.float64], products: NDArray[np.float64], segment: float
) -> NDArray[np.float64]:
    """Return the mean autocorrelation in each span, [scores, streams, spans].

    Args:
        sums: float64 [..., scores, streams, 1 + spans], of products of centred scores.
        products: float64 [..., 1 + spans], their numbers.
        segment: mean number of rows that were centred together.
    """
    means = sums / np.maximum(products, 1)
    variance = means[..., :1]
    raw = np.zeros_like(means[..., 1:])
    # Not of rounding errors of a constant.
    np.divide(means[..., 1:], variance, out=raw, where=variance > 1e-6)
    # Centring by the mean of the segment lowers those of independent rows by this.
    return np.where(variance > 1e-6, raw + 1 / segment, 0.0)


def _unbiased(correlations: NDArray[np.float64], segment: float) -> NDArray[np.float64]:
    """Return correlations without what centring takes from those of dependent rows.

    Args:
        correlations: float64 [scores, streams, spans]; see `_correlations`.
        segment: mean number of rows that were centred together.
    """
    found = correlations
    for _ in range(3):
        # The variance of the mean of a segment, beyond that of independent rows.
        lost = np.minimum((_time(found)[..., None] - 1) / segment, 0.5)
        found = correlations + (1 - correlations) * lost
    return found


def _time(correlations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the integrated correlation time in rows, 1 if there is no correlation.

    Spans are added up to the first that is negative (compare Geyer, *Practical Markov chain Monte
    Carlo*, Statistical Science 1992).
    """
    parts = correlations * _LENGTHS
    # The first two lags together.
    parts = np.concatenate([parts[..., :1] + parts[..., 1:2], parts[..., 2:]], axis=-1)
    first = np.cumprod(parts > 0, axis=-1)
    return np.asarray(1 + 2 * (parts * first).sum(-1))


def _distances(
    correlations: NDArray[np.float64], rows: int, segment: float, errors: float
) -> NDArray[np.int64]:
    """Return the distances of nearly independent rows, int64 [streams]; see `Dependence.update`.

    Args:
        correlations: float64 [scores, streams, spans].
        rows: number of rows from which they were estimated.
        segment: mean number of rows of a segment.
        errors: number of standard errors that may be chance.
    """
    dependent = _exceeds(correlations, np.zeros_like(correlations), rows, errors)
    correlations = _unbiased(correlations, segment)
    # Relative to the largest, since ties and noise weaken all correlations alike.
    peak = np.maximum(correlations.max(-1), 1e-9)
    length = np.maximum((_time(correlations) - 1) / peak - 1, 1.0)
    # At twice the correlation time, a correlation that decays exponentially is below 2 %.
    distance = np.where(dependent, np.ceil(2 * length), 1).astype(np.int64)
    far = dependent & (length > min(segment / _TIMES, _LAGS))
    return np.where(far.any(0), TOO_FAR, distance.max(0))


def _exceeds(
    correlations: NDArray[np.float64], known: NDArray[np.float64], rows: int, errors: float
) -> NDArray[np.bool_]:
    """Return whether correlations are larger than known ones by more than chance.

    Args:
        correlations: float64 [scores, streams, spans], estimated.
        known: float64 [scores, streams, spans], to compare with.
        rows: number of rows from which they were estimated.
        errors: number of standard errors that may be chance.

    Returns:
        bool [scores, streams].
    """
    excess = np.cumsum((correlations - known) * _LENGTHS, axis=-1)
    # Sums of correlations vary more if the rows depend on each other.
    error = np.sqrt(np.cumsum(_LENGTHS) / rows * _time(known)[..., None])
    return np.asarray((excess > errors * error)[..., ::2].any(-1))
