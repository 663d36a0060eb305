"""What windows are compared with: a sample of rows, and how their values rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vinedresser.drift import saving
from vinedresser.drift.columns import (
    Kind,
    as_categories,
    kind_of,
    read_column,
    read_times,
    row_count,
)
from vinedresser.drift.contents import Column, Contents, Correctness
from vinedresser.drift.cycle import Cycle, find_cycle
from vinedresser.drift.encoders import make_encoder
from vinedresser.drift.evidence.bins import Edges, outer_bins
from vinedresser.drift.evidence.dependence import (
    SHARED,
    TOO_FAR,
    Dependence,
    correlations_shape,
)
from vinedresser.errors import DriftError

__all__ = ["Baseline", "read_correct"]

# Fewer say too little for any test.
_LEAST_ROWS = 40
# Of one column that depends on its neighbours more than the others do.
_LEAST_COMPARED = 20
# Rows of the baseline in which dependence is estimated at a time.
_CHUNK = 500
# Of one phase of a cycle.
_LEAST_IN_PHASE = 4
# Standard errors that are no evidence of dependence, with many columns.
_ERRORS = 5.0


class Baseline(Contents):
    """Rows that later windows are compared with. Create it with `of` or `load`."""

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Any],
        *,
        correct: ArrayLike | None = None,
        categories: tuple[str, ...] = (),
        rows: int = 5000,
        in_time_order: bool = True,
        period: float | None = None,
        times: ArrayLike | None = None,
        seed: int = 0,
    ) -> Baseline:
        """Return the baseline of rows of a training or validation set, or of early requests.

        Args:
            columns: arrays of one length by name: [rows] of float (NaN is missing), int, bool, str
                or object; [rows, dimensions] of numbers for an embedding.
            correct: bool [rows], whether the model's prediction was correct.
            categories: names of integer columns whose numbers are codes, such as classes.
            rows: number of rows that are kept, at most.
            in_time_order: whether neighbouring rows are successive requests. Their dependence is
                then estimated, and baselines without enough independent rows are refused. A cycle
                is looked for, too; if there is one, whole cycles of requests are compared. Of rows
                that are shuffled or sorted, give False: a monitor then learns from the first
                requests how far they depend on each other, and cannot tell of most drift before.
            period: of a cycle of the requests, such as a week, in seconds if there are `times`,
                otherwise in rows.
            times: [rows], when each row was a request: seconds, or dates of numpy in UTC. With
                these, requests are compared with the rows in the same phase of the period: Mondays
                with Mondays.
            seed: of the random choices.

        Raises:
            DriftError: columns are invalid, there are fewer than 40 (independent) rows, or rows
                depend on each other over too many rows; or the rows are less than two periods.
        """
        count = row_count(columns)
        if count < _LEAST_ROWS:
            raise DriftError(f"a baseline of {count} rows: at least {_LEAST_ROWS} are needed")
        if unknown := set(categories) - set(columns):
            raise DriftError(f"categories: there is no column {min(unknown)!r}")
        read, kinds = {}, {}
        for name, values in columns.items():
            kinds[name], read[name] = _read(name, values, name in categories)
        random = np.random.default_rng(seed)
        cycle, at = _given_cycle(count, period, times)
        distances = dict.fromkeys(read, 1)
        usual = {name: np.zeros(correlations_shape(1)) for name in read}
        if in_time_order:
            ordered = _streams_in_order(read, kinds, random)
            together = np.hstack([bins for bins, _, _ in ordered.values()])
            cycle = cycle or find_cycle(together)
            distances, usual = _dependence(ordered, cycle, at)
            if cycle is None and TOO_FAR in distances.values():
                cycle = find_cycle(together, dependent=True)
                distances, usual = _dependence(ordered, cycle, at)
        apart = _apart(count, list(distances.values()))
        if len(apart) > rows:
            apart = random.choice(apart, rows, replace=False)
        apart = random.permutation(apart)
        sample = {name: values[apart] for name, values in read.items()}
        half = len(apart) // 2
        if cycle is not None and cycle.timed:
            cycle = cycle.with_phases(at[apart[:half]], at[apart[half:]])
        phase = np.zeros(count, np.int64) if cycle is None else cycle.phase(at)
        held_out = np.sort(apart[half:])
        _check_phases(cycle, phase[apart[:half]], "the sample")
        found, encoders, parts, known = [], {}, [], []
        for name, values in read.items():
            encoders[name] = make_encoder(kinds[name], sample[name][:half])
            # Numbers need no encoder, so that all their rows are of use.
            compared = np.arange(count) if kinds[name] == "number" else held_out
            compared = _at_distance(compared, distances[name])
            _check_phases(cycle, phase[compared], name)
            distance = distances[name] if len(compared) >= _LEAST_COMPARED else TOO_FAR
            width = values.shape[1] if values.ndim == 2 else 1
            found.append(Column(name, kinds[name], width, distance))
            if found[-1].monitored:
                encoded = encoders[name].encode(values[compared])
                ties = random.random(encoded.shape)
                parts.append(Edges.of(encoded, ties, phase[compared]))
                widths = encoded.shape[1] // usual[name].shape[1]
                known.append(np.repeat(usual[name], widths, axis=1))
        right, accuracy, correctness = _correctness(correct, count, in_time_order, random)
        return cls(
            columns=tuple(found),
            sample=sample,
            encoders=encoders,
            edges=Edges.joined(parts),
            correct=right,
            accuracy=accuracy,
            correctness=correctness,
            seed=seed,
            cycle=cycle,
            phase=phase[apart],
            usual=np.concatenate(known, axis=1),
            in_time_order=in_time_order,
        )

    def save(self, folder: str | Path) -> None:
        """Write the baseline.

        Args:
            folder: directory, created if missing, for ``baseline.json`` and
                ``baseline.safetensors``.

        Raises:
            DriftError: the folder has a baseline already.
            StoreError: a file cannot be written.
        """
        saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> Baseline:
        """Return a saved baseline.

        Args:
            folder: see `save`.

        Raises:
            DriftError: a file is missing, damaged, too large or not a regular file.
        """
        return cls(**vars(saving.load(folder)))


def _apart(count: int, distances: Sequence[int]) -> NDArray[np.int64]:
    """Return rows that are nearly independent, in ascending order.

    Args:
        distances: between independent rows, of each column.
    """
    reached = sorted(distance for distance in distances if distance < TOO_FAR)
    order = (
        "Give more rows, or in_time_order=False if the rows are sorted rather than in time order"
    )
    if not reached:
        raise DriftError(
            "rows of the baseline depend on each other over their whole length, so no budget of "
            f"false alarms can be held. {order}"
        )
    # What most columns show, as in a monitor; a single one may differ by chance.
    apart = np.arange(0, count, reached[math.ceil(SHARED * (len(reached) - 1))])
    if len(apart) < _LEAST_ROWS:
        raise DriftError(
            f"neighbouring rows of the baseline depend on each other: of {count}, only "
            f"{len(apart)} are independent, and {_LEAST_ROWS} are needed to hold a budget of false "
            f"alarms. {order}"
        )
    return apart


def _at_distance(rows: NDArray[np.int64], distance: int) -> NDArray[np.int64]:
    """Return some of the rows, given in ascending order, between which there is a distance."""
    if distance == 1:
        return rows
    kept = [0]
    while kept[-1] < len(rows):
        kept.append(int(np.searchsorted(rows, rows[kept[-1]] + distance)))
    return rows[kept[:-1]]


_Ordered = tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]


def _streams_in_order(
    read: Mapping[str, NDArray[Any]], kinds: Mapping[str, Kind], random: np.random.Generator
) -> dict[str, _Ordered]:
    """Return bins of the rows among themselves, values and ties, [rows, streams], by column."""
    found = {}
    for name, values in read.items():
        streams = make_encoder(kinds[name], values).encode(values)
        ties = random.random(streams.shape)
        found[name] = Edges.of(streams, ties).bins(streams, ties), streams, ties
    return found


def _dependence(
    ordered: Mapping[str, _Ordered], cycle: Cycle | None, at: NDArray[np.float64]
) -> tuple[dict[str, int], dict[str, NDArray[np.float64]]]:
    """Return the number of rows between nearly independent ones, and correlations, by column.

    Args:
        ordered: see `_streams_in_order`.
        cycle: of the rows, in whose phases they are compared: a cycle is no dependence.
        at: float64 [rows], where in it they are.
    """
    distances, usual = {}, {}
    for name, (among_all, streams, ties) in ordered.items():
        bins = among_all
        if cycle is not None:
            phase = cycle.with_phases(at).phase(at)
            phase = np.unique(phase, return_inverse=True)[1]
            bins = Edges.of(streams, ties, phase).bins(streams, ties, phase)
        # Cycles of which only whole ones are compared may vary a little in length.
        moves = cycle is not None and not cycle.timed
        dependence = Dependence(bins.shape[1], _ERRORS, changes="each" if moves else "none")
        for start in range(0, len(bins), _CHUNK):
            dependence.update(bins[start : start + _CHUNK])
        distances[name] = int(dependence.distances().max())
        usual[name] = dependence.usual.max(1, keepdims=True)
    return distances, usual


def _given_cycle(
    count: int, period: float | None, times: ArrayLike | None
) -> tuple[Cycle | None, NDArray[np.float64]]:
    """Return the cycle that was given, if any, and where in a cycle rows are, float64 [rows]."""
    at = np.arange(float(count)) if times is None else read_times(times, count)
    if period is None:
        if times is not None:
            raise DriftError("times: of no use without a period")
        return None, at
    if not 0 < period < math.inf:
        raise DriftError(f"period={period!r}: expected a positive number")
    length, unit = float(period), "rows" if times is None else "seconds"
    span = float(count) if times is None else float(at.max() - at.min())
    if 2 * length > span * (1 + 1 / count):
        raise DriftError(
            f"period={period!r}: the rows of the baseline span {span:g} {unit}; at least two "
            "periods are needed"
        )
    return Cycle(length, 1, timed=times is not None), at


def _check_phases(cycle: Cycle | None, phase: NDArray[np.int64], name: str) -> None:
    """Raise an error if a phase of a cycle has no rows."""
    if cycle is None:
        return
    counts = np.bincount(phase, minlength=cycle.phases)
    if counts.min() < _LEAST_IN_PHASE:
        raise DriftError(
            f"period={cycle.length:g}: {name} has {counts.min()} independent rows in one of "
            f"{cycle.phases} parts of the period, and {_LEAST_IN_PHASE} are needed; give more rows"
        )


def read_correct(correct: ArrayLike, rows: int) -> NDArray[np.float64]:
    """Return whether predictions were correct, float64 [rows, 1], NaN where unknown.

    Raises:
        DriftError: it has another length, or other values than 0 and 1.
    """
    array = np.asarray(correct, np.float64)
    if array.shape != (rows,) or not np.isin(array[~np.isnan(array)], (0, 1)).all():
        raise DriftError(f"correct: expected {rows} booleans, one for each row")
    return array[:, None]


def _correctness(
    correct: ArrayLike | None, count: int, in_time_order: bool, random: np.random.Generator
) -> tuple[Edges | None, float, Correctness]:
    """Return edges of nearly independent labels, the accuracy, and what their order shows.

    Args:
        correct: see `Baseline.of`.
        in_time_order: see `Baseline.of`.
        random: of the order of equal values.
    """
    if correct is None:
        return None, math.nan, Correctness.unknown()
    read = read_correct(correct, count)
    known = read[~np.isnan(read[:, 0])]
    if len(known) == 0:
        raise DriftError("correct: unknown for all rows; leave it out")
    shown = Correctness.unknown()
    if in_time_order:
        # All at once: errors of sessions are in a few chunks only, which the median leaves out.
        dependence = Dependence(1, _ERRORS, changes="none")
        dependence.update(outer_bins(known))
        shown = Correctness(len(known), int(dependence.distances()[0]), dependence.usual)
    # With labels that depend on each other over too many, nothing is compared.
    apart = known[:: shown.distance if shown.distance < TOO_FAR else 1]
    return Edges.of(apart, random.random(apart.shape)), float(known.mean()), shown


def _read(name: str, values: Any, coded: bool) -> tuple[Kind, NDArray[Any]]:
    """Return the kind of a column, and its values."""
    array = np.asarray(values)
    try:
        kind = kind_of(array)
    except DriftError as error:
        raise DriftError(f"column {name!r}: {error}") from error
    if coded and kind != "embedding":
        return "category", as_categories(array)
    read = read_column(array, kind, array.shape[-1])
    assert read is not None
    return kind, read
