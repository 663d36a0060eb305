"""What windows are compared with: a sample of rows, and how their values rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vinedresser.drift import saving
from vinedresser.drift.columns import Kind, as_categories, kind_of, read_column, row_count
from vinedresser.drift.contents import Column, Contents
from vinedresser.drift.encoders import make_encoder
from vinedresser.drift.evidence.bins import Edges
from vinedresser.drift.evidence.dependence import SHARED, TOO_FAR, Dependence
from vinedresser.errors import DriftError

__all__ = ["Baseline", "read_correct"]

# Fewer say too little for any test.
_LEAST_ROWS = 40
# Of one column that depends on its neighbours more than the others do.
_LEAST_COMPARED = 20
# Rows of the baseline in which dependence is estimated at a time.
_CHUNK = 500
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
                then estimated, and baselines without enough independent rows are refused.
            seed: of the random choices.

        Raises:
            DriftError: columns are invalid, there are fewer than 40 (independent) rows, or rows
                depend on each other over too many rows.
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
        distances = dict.fromkeys(read, 1)
        if in_time_order:
            distances = _distances(read, kinds, random)
        apart = _apart(count, list(distances.values()))
        if len(apart) > rows:
            apart = random.choice(apart, rows, replace=False)
        apart = random.permutation(apart)
        sample = {name: values[apart] for name, values in read.items()}
        half = len(apart) // 2
        held_out = np.sort(apart[half:])
        found, encoders, parts = [], {}, []
        for name, values in read.items():
            encoders[name] = make_encoder(kinds[name], sample[name][:half])
            # Numbers need no encoder, so that all their rows are of use.
            compared = np.arange(count) if kinds[name] == "number" else held_out
            compared = _at_distance(compared, distances[name])
            distance = distances[name] if len(compared) >= _LEAST_COMPARED else TOO_FAR
            width = values.shape[1] if values.ndim == 2 else 1
            found.append(Column(name, kinds[name], width, distance))
            if found[-1].monitored:
                encoded = encoders[name].encode(values[compared])
                parts.append(Edges.of(encoded, random.random(encoded.shape)))
        right = None if correct is None else _known(read_correct(correct, count)[apart])
        return cls(
            columns=tuple(found),
            sample=sample,
            encoders=encoders,
            edges=Edges.joined(parts),
            correct=None if right is None else Edges.of(right, random.random(right.shape)),
            accuracy=float("nan") if right is None else float(right.mean()),
            seed=seed,
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
        count: number of rows.
        distances: between independent rows, of each column.

    Raises:
        DriftError: there are too few.
    """
    reached = sorted(one for one in distances if one < TOO_FAR)
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


def _distances(
    read: Mapping[str, NDArray[Any]], kinds: Mapping[str, Kind], random: np.random.Generator
) -> dict[str, int]:
    """Return the number of rows between nearly independent ones, by column."""
    found = {}
    for name, values in read.items():
        streams = make_encoder(kinds[name], values).encode(values)
        ties = random.random(streams.shape)
        bins = Edges.of(streams, ties).bins(streams, ties)
        dependence = Dependence(bins.shape[1], _ERRORS)
        for start in range(0, len(bins), _CHUNK):
            dependence.update(bins[start : start + _CHUNK])
        found[name] = int(dependence.distances().max())
    return found


def read_correct(correct: ArrayLike, rows: int) -> NDArray[np.float64]:
    """Return whether predictions were correct, float64 [rows, 1], NaN where unknown.

    Raises:
        DriftError: it has another length, or other values than 0 and 1.
    """
    array = np.asarray(correct, np.float64)
    if array.shape != (rows,) or not np.isin(array[~np.isnan(array)], (0, 1)).all():
        raise DriftError(f"correct: expected {rows} booleans, one for each row")
    return array[:, None]


def _known(correct: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows with a label, at least one.

    Raises:
        DriftError: there are none.
    """
    found = correct[~np.isnan(correct[:, 0])]
    if len(found) == 0:
        raise DriftError("correct: unknown for all rows; leave it out")
    return found


def _read(name: str, values: Any, coded: bool) -> tuple[Kind, NDArray[Any]]:
    """Return the kind of a column, and its values.

    Raises:
        DriftError: it is of no kind that can be monitored.
    """
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
