"""Sizes of changes of all columns of a baseline: sums, and what would have been found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.contents import Contents
from vinedresser.drift.distances import SortedSample
from vinedresser.drift.evidence.bins import BINS, Edges
from vinedresser.drift.evidence.likelihood import array_of
from vinedresser.drift.sizes.categories import CategorySizes
from vinedresser.drift.sizes.change import Change
from vinedresser.drift.sizes.history import History
from vinedresser.drift.sizes.numbers import NumberSizes
from vinedresser.drift.sizes.sensitivity import (
    Ladder,
    Sensitivity,
    number_ladder,
    seems_at_least,
    share_ladder,
)

# Factor by which the rows have to grow before the smallest change that would have been found is
# computed anew; until then the last one still holds.
_GROWTH = 1.25
# Values count up to so many standard deviations in the middle of a phase.
_MOST_DEVIATIONS = 10.0
# A phase may be so much wider or narrower than the others.
_RATIO = 5.0


class ColumnSizes:
    """Sizes of the changes of the streams of a baseline.

    Args:
        needed: evidence that raises an alarm, in nats.
        at_least: smallest changes that raise one, in standard deviations and in shares of rows.
    """

    def __init__(self, baseline: Contents, needed: float, at_least: tuple[float, float]) -> None:
        self._baseline, self._needed, self._at_least = baseline, needed, at_least
        self._sizes: list[NumberSizes | CategorySizes] = []
        self._phases: list[_NumberPhases | _SharePhases] = []
        at_phase = baseline.phase
        for column in baseline.columns:
            if not column.monitored:
                continue
            sample, encoder = baseline.sample[column.name], baseline.encoders[column.name]
            if column.kind == "category":
                sizes = CategorySizes(column.name, sample)
                self._sizes.append(sizes)
                self._phases.append(_SharePhases(sizes, sample, at_phase))
                continue
            encoded = encoder.encode(sample)
            for at, stream in enumerate(encoder.streams):
                phases = _NumberPhases(encoded[:, at], at_phase)
                alike = phases.alike(encoded[:, at], at_phase)
                self._sizes.append(NumberSizes(column.name, alike, stream))
                self._phases.append(phases)
        self.in_deviations = np.array(
            [isinstance(size, NumberSizes) and size.constant is None for size in self._sizes], bool
        )
        """bool [streams], whether `smallest` is in standard deviations; else in shares of rows."""
        streams = len(self._sizes)
        # Values in bins, rows in phases, and the sums of each stream.
        self._in_phases = np.bincount(at_phase, minlength=baseline.edges.gaps.shape[1])
        first = streams * BINS + len(self._in_phases)
        self._bounds = first + np.cumsum([0, *(size.size for size in self._sizes)])
        self.history = History(int(self._bounds[-1]))
        self._sensitivity: Sensitivity | None = None
        self._smallest = np.full(streams, math.inf)
        self._smallest_rows = 0.0

    def add(
        self,
        window: int,
        columns: Mapping[str, NDArray[Any]],
        phase: NDArray[np.int64],
        counts: NDArray[np.float64],
        starts: Iterable[int],
    ) -> None:
        """Add a window.

        Args:
            window: its index.
            columns: its columns; those of the baseline that are missing are left out.
            phase: int64 [rows], phase of each row in the cycle of the baseline.
            counts: values in each bin that were used, float64 [streams, BINS].
            starts: windows since which a change may be asked for.
        """
        sums = np.zeros(self.history.total.shape)
        sums[: counts.size] = counts.ravel()
        phases = np.bincount(phase, minlength=len(self._in_phases))
        sums[counts.size : counts.size + len(phases)] = phases
        stream = 0
        for column in self._baseline.columns:
            if not column.monitored:
                continue
            encoder, values = self._baseline.encoders[column.name], columns.get(column.name)
            width = len(encoder.streams)
            if values is not None:
                parts = [values] if column.kind == "category" else [*encoder.encode(values).T]
                for at, part in enumerate(parts, stream):
                    sums[slice(*self._bounds[at : at + 2])] = self._sums(at, part, phase)
            stream += width
        self.history.add(window, sums, starts)

    def _sums(
        self, stream: int, values: NDArray[Any], phase: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the sums of a stream over values, as they would be without the cycle."""
        sizes, phases = self._sizes[stream], self._phases[stream]
        if isinstance(phases, _SharePhases):
            return sizes.sums(values) + phases.correction(phase)
        return sizes.sums(phases.alike(values, phase))

    def change(self, stream: int, start: int) -> Change:
        """Return the clearest change of a stream since a window."""
        before = self.history.before(start)
        after = self.history.total - before
        bounds = slice(*self._bounds[stream : stream + 2])
        bins = slice(stream * BINS, (stream + 1) * BINS)
        earlier = self._baseline.edges.gaps[stream].sum(0) + before[bins]
        first = len(self._sizes) * BINS
        phases = slice(first, first + len(self._in_phases))
        rows = self._in_phases + before[phases]
        earlier *= _rows_alike(rows, after[phases]) / rows.sum()
        return self._sizes[stream].change(before[bounds], after[bounds], (earlier, after[bins]))

    def rows(self) -> NDArray[np.float64]:
        """Return how many values of each stream were used so far, float64 [streams]."""
        streams = len(self._sizes)
        return np.asarray(self.history.total[: streams * BINS].reshape(streams, BINS).sum(1))

    def smallest(self) -> NDArray[np.float64]:
        """Return the smallest change that would have been found by now, float64 [streams].

        In the units of `in_deviations`; infinite where none.
        """
        rows = self.rows()
        if rows.sum() >= _GROWTH * self._smallest_rows and rows.any():
            if self._sensitivity is None:
                self._sensitivity = Sensitivity(
                    self._baseline.edges, [*self._ladders()], self._needed
                )
            gaps = self._baseline.edges.gaps.sum((1, 2))
            # A share varies by a half at most.
            enough = (
                seems_at_least(size, rows, gaps, deviation)
                for size, deviation in zip(self._at_least, (1.0, 0.5), strict=True)
            )
            enough_of_all = np.where(self.in_deviations, *enough)
            self._smallest = np.maximum(self._sensitivity.smallest(rows), enough_of_all)
            self._smallest_rows = rows.sum()
        return self._smallest

    def _ladders(self) -> Iterable[Ladder]:
        baseline = self._baseline
        ties = np.random.default_rng(baseline.seed).random((len(baseline.phase), 1))
        stream = 0
        for column in self._baseline.columns:
            if not column.monitored:
                continue
            encoder = baseline.encoders[column.name]
            encoded = encoder.encode(baseline.sample[column.name])
            for part in encoded.T:
                values = part
                sizes, phases = self._sizes[stream], self._phases[stream]
                own = _of_stream(baseline.edges, stream)
                if len(self._in_phases) > 1:
                    if isinstance(phases, _NumberPhases):
                        values = phases.alike(values, baseline.phase)
                    # Shifts of ranks are the same in all phases.
                    own = Edges.of(values[:, None], ties)
                binning = _binning(own, baseline.seed)
                if isinstance(sizes, CategorySizes):
                    codes = encoder.encode(np.array([*sizes.frequent, "", ""][:2], object))
                    most, other = float(codes[0, 0]), float(codes[1, 0])
                    share = float((values == most).mean())
                    yield share_ladder(share, most, (other, other), binning)
                elif sizes.constant is not None:
                    one = sizes.constant
                    share = float((values == one).mean()) or 1.0
                    yield share_ladder(share, one, (one - 1, one + 1), binning)
                else:
                    yield number_ladder(values, binning, sizes.unit, discrete=sizes.discrete)
                stream += 1

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "history": self.history.state(),
            "new": [size.new if isinstance(size, CategorySizes) else [] for size in self._sizes],
            "smallest": [None if math.isinf(one) else float(one) for one in self._smallest],
            "smallest_rows": float(self._smallest_rows),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many columns.
        """
        self.history.resume(state["history"])
        for sizes, names in zip(self._sizes, state["new"], strict=True):
            if isinstance(sizes, CategorySizes):
                sizes.learn([str(name) for name in names])
        known = [-1.0 if one is None else one for one in state["smallest"]]
        smallest = array_of({"smallest": known}, "smallest", self._smallest.shape)
        self._smallest = np.where(smallest < 0, math.inf, smallest)
        self._smallest_rows = float(state["smallest_rows"])


def _binning(edges: Edges, seed: int) -> Callable[[NDArray[np.float64]], NDArray[np.uint8]]:
    """Return a function from values [rows] of a stream to their bins."""

    def binned(values: NDArray[np.float64]) -> NDArray[np.uint8]:
        ties = np.random.default_rng(seed).random((len(values), 1))
        return np.asarray(edges.bins(values[:, None], ties)[:, 0])

    return binned


def _of_stream(edges: Edges, stream: int) -> Edges:
    one = slice(stream, stream + 1)
    return Edges(edges.values[:, :, one], edges.ties[:, :, one], edges.rows[:, one])


class _NumberPhases:
    """Moves and stretches numbers of each phase to where those of all phases are.

    Args:
        sample: values of the baseline, float64 [rows]; NaN is missing.
        phase: int64 [rows], phase of each.
    """

    def __init__(self, sample: NDArray[np.float64], phase: NDArray[np.int64]) -> None:
        phases = int(phase.max(initial=0)) + 1
        self._middle = 0.0
        self._centres, self._ratios = np.zeros(phases), np.ones(phases)
        known = ~np.isnan(sample)
        if phases == 1 or not known.any():
            return
        values = SortedSample(sample[known])
        limit = _MOST_DEVIATIONS * values.spread
        middle = values.quantile(0.5)
        clipped = sample[known].clip(middle - limit, middle + limit)
        at = phase[known]
        counts = np.maximum(np.bincount(at, minlength=phases), 1)
        self._middle = float(clipped.mean())
        present = np.bincount(at, minlength=phases) > 0
        sums = np.bincount(at, clipped, phases) / counts
        self._centres = np.where(present, sums, self._middle)
        squares = np.bincount(at, (clipped - self._centres[at]) ** 2, phases) / counts
        within = float(np.sqrt((squares * counts).sum() / counts.sum()))
        spreads = np.sqrt(squares)
        known_spread = (spreads > 0) & (within > 0)
        ratios = np.divide(within, spreads, out=np.ones(phases), where=known_spread)
        self._ratios = ratios.clip(1 / _RATIO, _RATIO)

    def alike(self, values: NDArray[np.float64], phase: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return values as they would be without the cycle, float64 [rows]."""
        if len(self._centres) == 1:
            return values
        return np.asarray((values - self._centres[phase]) * self._ratios[phase] + self._middle)


class _SharePhases:
    """By how much the sums of categories differ between phases.

    Args:
        sample: values of the baseline, object [rows].
        phase: int64 [rows], phase of each.
    """

    def __init__(
        self, sizes: CategorySizes, sample: NDArray[Any], phase: NDArray[np.int64]
    ) -> None:
        phases = int(phase.max(initial=0)) + 1
        usual = sizes.sums(sample) / len(sample)
        self._more = np.zeros((phases, sizes.size))
        for one in range(phases if phases > 1 else 0):
            values = sample[phase == one]
            if len(values):
                self._more[one] = sizes.sums(values) / len(values) - usual

    def correction(self, phase: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what the sums of rows would have without the cycle, less what they have.

        Args:
            phase: int64 [rows], phase of each row.
        """
        counts = np.bincount(phase, minlength=len(self._more))
        return np.asarray(-(counts @ self._more))


def _rows_alike(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return how many rows tell as much as those before, in the phases of those after.

    Args:
        before: float64 [phases], rows in each phase before a change.
        after: float64 [phases], rows since.
    """
    shares = after / max(float(after.sum()), 1.0)
    used = shares > 0
    if not used.any():
        return float(before.sum())
    # The variance of a mean of the phases with these shares.
    return float(1 / (shares[used] ** 2 / np.maximum(before[used], 1)).sum())
