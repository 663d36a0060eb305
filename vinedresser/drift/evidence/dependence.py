"""How many rows apart values have to be to be nearly independent, estimated from their order.

Requests that follow each other are often alike: they come from one session, or from one time of the
day. Then the urn does not hold for all rows, but it nearly does for rows that are far enough apart.

Rows on the same side of a jump are alike, too, and so are neighbours on a slope: a drift looks like
dependence. So the largest jump or slope of successive rows is removed before they are said to
depend on each other, and what is left decides. It is dependent in a stationary process, whose jumps
are many, and independent after the one jump of a drift, however large that is.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from vinedresser.drift.evidence.bins import BINS
from vinedresser.drift.evidence.likelihood import array_of

__all__ = ["SCORES", "SHARED", "TOO_FAR", "Dependence", "correlations_shape", "rows_to_settle"]

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
_CENTRES = _SPANS + (_LENGTHS - 1) / 2
# Of a sum of spans up to the first that is negative, the first two are one.
_TOGETHER = np.array([0, *range(2, len(_SPANS))])
# Segments go to these in turn, and their median counts: so a few with a change do not. Before each
# group has a segment, the largest change is removed.
_GROUPS = 5
# With sessions that are as long as a window, segments of so many windows show their dependence, and
# the median of so many segments, if no values are equal: 1 of 256 monitors does not see it then.
_WINDOWS, _SETTLED = 2, 10
# A change is where it seems to be if it explains this many times the variance of the rest, in rows;
# and counts as one if it explains this many times what the dependence of the rest can.
_LOCATED, _CHANGE = 30.0, 40.0
# How much more a median of groups varies than the mean.
_MEDIAN = 1.2
# Standard errors by which the mean of all columns exceeds 0 by chance, at most: of 5 to 64 columns,
# the mean after a jump is up to 4.3. A column counts up to so many, so that one column alone, such
# as a counter, does not decide on the others.
_POOLED, _OF_COLUMN = 5.0, 4.0
# In up to so many rows, sessions are few. So fewer standard errors of a column are no chance there,
# if at least so many rows tell about its correlations.
_FEW_ROWS, _FEW_ERRORS, _TELLING = 400, 3.0, 100
# Correlation times that a segment has to contain for them to be estimated.
_TIMES = 5


def _scores() -> NDArray[np.float32]:
    """Return what is correlated, [scores, BINS]: location, spread, and whether it is rare."""
    middle = (np.arange(BINS) + 0.5) / BINS - 0.5
    spread = abs(middle)
    return np.stack([middle, spread, (spread > 0.3).astype(float)]).astype(np.float32)


SCORES = _scores()
"""float32 [scores, BINS]: location, spread and rarity of the values in a bin."""


class Dependence:
    """Autocorrelations of several streams, and the distances of nearly independent rows.

    Args:
        streams: number of streams.
        errors: number of standard errors by which the autocorrelations of independent rows exceed 0
            by chance, at most.
        changes: in how many segments the largest jump or slope is no dependence: in none, as
            nothing changes, in one, or, as in a cycle, in each.
        known: float64 [scores, streams, spans], correlations of earlier rows; see `usual`.
        together: number of successive streams that are columns of the same rows. A few sessions in
            a window look like one jump in each column, but not in the mean of many.
        long: whether sessions may be as long as a window.
    """

    def __init__(
        self,
        streams: int,
        errors: float = 4.0,
        *,
        changes: Literal["none", "one", "each"] = "one",
        known: NDArray[np.float64] | None = None,
        together: int = 1,
        long: bool = False,
    ) -> None:
        self._errors, self._changes, self._together = errors, changes, max(together, 1)
        self._windows = _WINDOWS if long else 1
        # By group of segments, distances of the last one by the mean of each group of columns.
        self._pooled = np.ones((_GROUPS, streams // self._together))
        self._known = np.zeros(correlations_shape(streams)) if known is None else known
        self._pending, self._phase = np.empty((0, streams), np.uint8), np.empty(0, np.int64)
        # By group, sums of products of centred scores: variance, then spans; the numbers of
        # products; and of its first segment the same sums without the largest change.
        self._sums = np.zeros((_GROUPS, len(SCORES), streams, len(_SPANS) + 1))
        self._products = np.zeros((_GROUPS, len(_SPANS) + 1))
        self._rests = np.zeros_like(self._sums)
        self._informative = np.zeros((_GROUPS, len(SCORES), streams))
        self._rows = self._segments = 0
        self._usual = self._known
        self._distances = np.ones(streams, np.int64)
        self._stale = False

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self._rows + len(self._pending)

    def settled(self, told: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether correlations are known, those of sessions of a window included.

        Args:
            told: float64 [streams]; see `rows_to_settle`.

        Returns:
            bool [streams].
        """
        return np.asarray(self._segments * told**2 >= _SETTLED)

    @property
    def usual(self) -> NDArray[np.float64]:
        """Mean correlations in each span of lags, float64 [scores, streams, spans]."""
        self._learn()
        return self._usual

    def update(
        self,
        bins: NDArray[np.uint8],
        phase: NDArray[np.int64] | None = None,
        total: NDArray[np.float64] | None = None,
    ) -> NDArray[np.int64]:
        """Add successive rows.

        Args:
            bins: uint8 [rows, streams], less than BINS.
            phase: int64 [rows], phase of each row in a cycle; None: there is a single one.
            total: float64 [streams, phases, BINS], values so far, whose mean in a phase is no
                dependence; None: there is a single phase.

        Returns:
            Number of rows between rows that are nearly independent, int64 [streams]: 1 if all are,
            `TOO_FAR` if none in reach are.
        """
        self._learn()
        phase = np.zeros(len(bins), np.int64) if phase is None else phase
        self._pending = np.concatenate([self._pending, bins])
        self._phase = np.concatenate([self._phase, phase])
        rows = len(self._pending)
        if rows < 3:
            return self._distances
        scores = SCORES.take(self._pending.T, axis=1)
        if total is not None:
            means = np.einsum("spb,cb->csp", total, SCORES) / total.sum(-1)
            scores -= means[..., self._phase]
        scores -= scores.mean(-1, keepdims=True)
        sums, products = _products(scores)
        rests, informative = sums, np.full(scores.shape[:2], float(rows))
        rest = scores
        if self._changes != "none":
            rest, informative = _without_change(scores)
            rests = _products(rest)[0]
            sums = rests if self._changes == "each" else sums
        now = _estimate(sums[None], rests[None], products[None], informative[None], rows)
        # As known, unless these rows clearly depend on each other more.
        usual = self._expected(self._usual, rows)
        errors = self._by_chance(now.rows)
        excess = _excess(now.rest, usual, now.rows)
        more = (excess > errors[..., None]).any((0, 2))
        distances = self._distances
        if more.any():
            distances = distances.copy()
            distances[more] = np.maximum(distances, now.distances(errors))[more]
        pooled = _pooled(excess, _alike(rest, self._together), now.whole, rows)
        distances = np.maximum(distances, np.repeat(pooled, self._together))
        if rows >= max(_SEGMENT, self._windows * len(bins)):
            group = self._segments % _GROUPS
            self._sums[group] += sums
            self._products[group] += products
            self._pooled[group] = pooled
            if self._segments < _GROUPS:
                self._rests[group], self._informative[group] = rests, informative
            self._rows, self._segments = self.rows, self._segments + 1
            self._pending, self._phase = self._pending[:0], self._phase[:0]
            self._stale = True
            if self._segments == 2:
                # They show together what each of them alone does not.
                distances = np.maximum(distances, self.distances())
        return distances

    def distances(self) -> NDArray[np.int64]:
        """Return the distances by the rows so far, except the last few; see `update`."""
        self._learn()
        return self._distances

    def _by_chance(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard errors by which correlations of independent rows exceed 0 by chance.

        Args:
            rows: float64 [scores, streams], number of rows that tell about the correlations.
        """
        few = self._changes == "one" and self.rows <= _FEW_ROWS
        errors = min(self._errors, _FEW_ERRORS) if few else self._errors
        return np.where(rows >= _TELLING, errors, self._errors)

    @staticmethod
    def _expected(correlations: NDArray[np.float64], rows: float) -> NDArray[np.float64]:
        """Return correlations without what centring so many rows takes from them."""
        return np.asarray(correlations - (_time(correlations)[..., None] - 1) / rows)

    def _learn(self) -> None:
        """Estimate correlations and distances from the segments so far, if there are new ones."""
        if not self._stale:
            return
        self._stale = False
        segment = self._rows / self._segments
        if self._segments < _GROUPS:
            groups = slice(self._segments)
            found = _estimate(
                self._sums[groups],
                self._rests[groups],
                self._products[groups],
                self._informative[groups],
                segment,
            )
            errors = self._by_chance(found.rows)
            usual, distances = found.rest, found.distances(errors)
            known = self._expected(self._known, segment)
            more = _exceeds(found.rest, known, found.rows, errors)
        else:
            each = _correlations(self._sums, self._products[:, None, None], 1 / segment)
            usual = np.median(each, axis=0)
            dependent = _exceeds(usual, np.zeros(1), self._rows, _MEDIAN * self._errors)
            distances = _distances(usual, dependent, segment)
            known = self._expected(self._known, segment)
            more = _exceeds(usual, known, self._rows, _MEDIAN * self._errors)
        # A few rows tell less than those that are known, whose distance is used in any case.
        distances = np.where(more.any(0), distances, 1)
        pooled = np.ceil(np.median(self._pooled[: self._segments], axis=0)).astype(np.int64)
        self._distances = np.maximum(distances, np.repeat(pooled, self._together))
        self._usual = np.maximum(_unbiased(usual, segment), self._known)

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "pending": self._pending.tolist(),
            "phase": self._phase.tolist(),
            "sums": self._sums.tolist(),
            "products": self._products.tolist(),
            "rests": self._rests.tolist(),
            "informative": self._informative.tolist(),
            "pooled": self._pooled.tolist(),
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
        self._phase = array_of(state, "phase", (len(pending),)).astype(np.int64)
        self._sums = array_of(state, "sums", self._sums.shape)
        self._products = array_of(state, "products", self._products.shape)
        self._rests = array_of(state, "rests", self._rests.shape)
        self._informative = array_of(state, "informative", self._informative.shape)
        self._pooled = array_of(state, "pooled", self._pooled.shape)
        self._rows, self._segments = int(state["rows"]), int(state["segments"])
        self._stale = self._segments > 0


def rows_to_settle(window: int, told: float) -> float:
    """Return after how many rows, in windows of so many, correlations are settled.

    Equal values are ordered at random, which weakens correlations in proportion to the share of
    the variance of ranks that is of values. An error that has to be smaller in proportion needs a
    number of rows that grows with the square.

    Args:
        window: number of rows.
        told: that share; see `told_by_values`.
    """
    if told == 0:
        return math.inf
    return math.ceil(_SETTLED / told**2) * math.ceil(max(_SEGMENT / window, _WINDOWS)) * window


def correlations_shape(streams: int) -> tuple[int, int, int]:
    """Return the shape of correlations: scores, streams, spans of lags."""
    return len(SCORES), streams, len(_SPANS)


class _Estimate(NamedTuple):
    """What a few segments show.

    Attributes:
        rest: float64 [scores, streams, spans], correlations without the largest change.
        rows: float64 [scores, streams], number of rows that tell about these.
        whole: float64 [scores, streams, spans], correlations by which distances are chosen: with
            that change, unless it is clear.
        segment: mean number of rows of a segment.
    """

    rest: NDArray[np.float64]
    rows: NDArray[np.float64]
    whole: NDArray[np.float64]
    segment: float

    def distances(self, errors: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the distances of nearly independent rows, int64 [streams]; see `_exceeds`."""
        dependent = _exceeds(self.rest, np.zeros(1), self.rows, errors)
        return _distances(self.whole, dependent, self.segment)


def _estimate(
    sums: NDArray[np.float64],
    rests: NDArray[np.float64],
    products: NDArray[np.float64],
    informative: NDArray[np.float64],
    segment: float,
) -> _Estimate:
    """Return what segments show if one of them may have a change.

    Args:
        sums: float64 [segments, scores, streams, 1 + spans]; see `_correlations`.
        rests: float64 [segments, scores, streams, 1 + spans], the same without the largest change.
        products: float64 [segments, 1 + spans], numbers of products.
        informative: float64 [segments, scores, streams], rows that tell about `rests`.
        segment: mean number of rows of a segment.
    """
    left = rests[..., 0]
    explained = np.zeros_like(left)
    np.divide(sums[..., 0] - left, left, out=explained, where=left > 1e-6)
    explained = np.where((left <= 1e-6) & (sums[..., 0] > 1e-6), np.inf, explained) * segment
    most = explained.argmax(0)[None]
    at = most[..., None]
    total, number = sums.sum(0), products.sum(0)
    rest = total + (np.take_along_axis(rests - sums, at, axis=0))[0]
    telling = np.take_along_axis(informative, most, axis=0)[0]
    changed = np.arange(len(sums))[:, None, None] == most
    variances = np.where(changed, rests[..., 0], sums[..., 0])
    # Segments of which one has little variance tell less (Kish's effective sample size).
    spread = (variances**2 / np.where(changed, telling, segment)).sum(0)
    rows = segment * (len(sums) - 1) + telling
    np.divide(variances.sum(0) ** 2, spread, out=rows, where=spread > 1e-9)
    largest = np.take_along_axis(explained, most, axis=0)[0][..., None]
    # What centring takes from the correlations of independent rows in a segment, once for each side
    # of a jump, and what removing a change that is none does: fitted to simulations of 100 to 1,000
    # rows.
    by_chance = 5 / (1 + 20 * _CENTRES / segment)
    by_sides = 2 * np.maximum(1 - _CENTRES / telling[..., None], 0)
    last = np.where(largest > _LOCATED, by_sides, np.where(largest > 0, by_chance, 1.0))
    found = _correlations(rest, number, (len(sums) - 1 + last) / rows[..., None])
    whole = _correlations(total, number, 1 / segment)
    # Correlation times are 1 at least.
    if (largest > _CHANGE).any():
        time = _time(_unbiased(found, segment / 2))[..., None]
        whole = np.where(largest > _CHANGE * time, found, whole)
    return _Estimate(found, rows, whole, segment)


def _without_change(
    scores: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Remove the jump or the slope that explains the most.

    Args:
        scores: float32 [scores, streams, rows], centred.

    Returns:
        The rest, and the number of rows that tell about its correlations, float64 [scores,
        streams]: fewer if all rows on one side of a jump are equal.
    """
    rows = scores.shape[-1]
    after = np.arange(1, rows)
    sums = np.cumsum(scores, axis=-1, dtype=np.float64)[..., :-1]
    gains = sums**2
    gains *= rows / (after * (rows - after))
    at = gains.argmax(-1)[..., None]
    sum_before = np.take_along_axis(sums, at, axis=-1)
    before = np.arange(rows) <= at
    levels = sum_before / (at + 1), -sum_before / (rows - at - 1)
    rest = scores - np.where(before, *(level.astype(np.float32) for level in levels))
    time = np.arange(rows) - (rows - 1) / 2
    # Of centred scores, the sum of products with the time is that of the sums, negative.
    slopes = -sums.sum(-1) / (time @ time)
    straight = slopes**2 * (time @ time) > gains.max(-1)
    rest[straight] = scores[straight] - slopes[straight, None] * time
    squares = np.cumsum(rest**2, axis=-1, dtype=np.float64)
    first = np.take_along_axis(squares, at, axis=-1)[..., 0]
    total = squares[..., -1]
    spread = first**2 / (at[..., 0] + 1) + (total - first) ** 2 / (rows - at[..., 0] - 1)
    informative = np.full(spread.shape, float(rows))
    np.divide(total**2, spread, out=informative, where=spread > 1e-9)
    return rest, informative


def _products(
    scores: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sums of products of centred scores, [scores, streams, 1 + spans], and numbers."""
    rows = scores.shape[-1]
    # A product of small primes for most numbers of rows, which is fast.
    size = -(-(rows + _LAGS) // _LAGS) * _LAGS
    # Several at a time, unlike numpy's.
    spectrum = fft.rfft(scores, size)
    power = spectrum.real**2 + spectrum.imag**2
    lags = fft.irfft(power, size)[..., : _LAGS + 1]
    starts = np.concatenate([[0], _SPANS])
    numbers = np.maximum(rows - np.arange(_LAGS + 1.0), 0.0)
    sums = np.add.reduceat(lags, starts, axis=-1, dtype=np.float64)
    return sums, np.add.reduceat(numbers, starts)


def _correlations(
    sums: NDArray[np.float64], products: NDArray[np.float64], lost: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean autocorrelation in each span, [scores, streams, spans].

    Args:
        sums: float64 [..., scores, streams, 1 + spans], of products of centred scores.
        products: float64 [..., 1 + spans], their numbers.
        lost: what centring takes from the correlations of independent rows.
    """
    means = sums / np.maximum(products, 1)
    variance = means[..., :1]
    raw = np.zeros_like(means[..., 1:])
    # Not of rounding errors of a constant.
    np.divide(means[..., 1:], variance, out=raw, where=variance > 1e-6)
    return np.where(variance > 1e-6, raw + lost, 0.0)


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
    parts = np.add.reduceat(correlations * _LENGTHS, _TOGETHER, axis=-1)
    first = np.minimum.accumulate(parts, axis=-1) > 0
    return np.asarray(1 + 2 * np.add.reduce(parts, axis=-1, where=first))


def _distances(
    correlations: NDArray[np.float64], dependent: NDArray[np.bool_], segment: float
) -> NDArray[np.int64]:
    """Return the distances of nearly independent rows, int64 [streams]; see `Dependence.update`.

    Args:
        correlations: float64 [scores, streams, spans].
        dependent: bool [scores, streams], which of them are no chance.
        segment: mean number of rows of a segment.
    """
    if not dependent.any():
        return np.ones(dependent.shape[1], np.int64)
    correlations = _unbiased(correlations, segment)
    # Relative to the largest, since ties and noise weaken all correlations alike.
    peak = np.maximum(correlations.max(-1), 1e-9)
    length = np.maximum((_time(correlations) - 1) / peak - 1, 1.0)
    # At twice the correlation time, a correlation that decays exponentially is below 2 %.
    distance = np.where(dependent, np.ceil(2 * length), 1).astype(np.int64)
    far = dependent & (length > min(segment / _TIMES, _LAGS))
    return np.where(far.any(0), TOO_FAR, distance.max(0))


def _exceeds(
    correlations: NDArray[np.float64],
    known: NDArray[np.float64],
    rows: float | NDArray[np.float64],
    errors: float | NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Return whether correlations are larger than known ones by more than chance.

    Args:
        correlations: float64 [scores, streams, spans], estimated.
        known: float64 [scores, streams, spans], to compare with.
        rows: number of rows from which they were estimated, or [scores, streams] of them.
        errors: number of standard errors that may be chance, or [scores, streams] of them.

    Returns:
        bool [scores, streams].
    """
    excess = _excess(correlations, known, rows)
    return np.asarray((excess > np.asarray(errors)[..., None]).any(-1))


def _excess(
    correlations: NDArray[np.float64],
    known: NDArray[np.float64],
    rows: float | NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return how much sums of correlations exceed known ones, in standard errors; see `_exceeds`.

    Returns:
        float64 [scores, streams, sums].
    """
    excess = np.cumsum((correlations - known) * _LENGTHS, axis=-1)
    # Sums of correlations vary in proportion to the correlation time (Madras and Sokal, The Pivot
    # Algorithm, Journal of Statistical Physics 1988).
    time = _time(np.broadcast_to(known, correlations.shape))
    error = np.sqrt(np.cumsum(_LENGTHS) * (time**2 / np.maximum(rows, 1))[..., None])
    return np.asarray((excess / error)[..., ::2])


def _alike(rest: NDArray[np.float32], together: int) -> NDArray[np.float64]:
    """Return the variance of the mean of excesses of columns, relative to that of one.

    The correlation of the autocorrelations of two columns of independent rows is the square of the
    correlation of the columns (Bartlett, *On the theoretical specification and sampling properties
    of autocorrelated time-series*, JRSS Supplement 1946).

    Args:
        rest: float32 [scores, streams, rows], centred.
        together: number of successive streams that are columns of the same rows.

    Returns:
        float64 [scores, groups], from 1 / together, of independent columns, to 1.
    """
    size = np.sqrt((rest**2).sum(-1, keepdims=True))
    unit = np.divide(rest, size, out=np.zeros_like(rest), where=size > 1e-3)
    grouped = unit.reshape(len(rest), -1, together, rest.shape[-1])
    wide = together > rest.shape[-1]
    products = np.swapaxes(grouped, -1, -2) @ grouped if wide else grouped @ grouped.mT
    return np.asarray((products.astype(np.float64) ** 2).sum((-1, -2)) / together**2)


def _pooled(
    excess: NDArray[np.float64],
    alike: NDArray[np.float64],
    correlations: NDArray[np.float64],
    segment: float,
) -> NDArray[np.int64]:
    """Return the distances of nearly independent rows by the mean of columns, int64 [groups].

    Args:
        excess: float64 [scores, streams, sums]; see `_excess`.
        alike: float64 [scores, groups]; see `_alike`.
        correlations: float64 [scores, streams, spans], by which distances are chosen.
        segment: mean number of rows of a segment.
    """
    scores, groups = alike.shape
    bounded = np.minimum(excess, _OF_COLUMN)
    mean = bounded.reshape(scores, groups, -1, excess.shape[-1]).mean(2)
    dependent = (mean > _POOLED * np.sqrt(alike)[..., None]).any(-1)
    if not dependent.any():
        return np.ones(groups, np.int64)
    together = correlations.reshape(scores, groups, -1, correlations.shape[-1]).mean(2)
    return _distances(together, dependent, segment)
