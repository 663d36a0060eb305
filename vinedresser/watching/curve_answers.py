"""Curves of chosen runs, as a request asks for them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.explain.comparison.overlay import Band, Curve, Grid, moving_average, usual_limit
from vinedresser.explain.watching.table_row import Row
from vinedresser.plain_text import visible
from vinedresser.store.reading.series import Column
from vinedresser.watching.store_table import ListedRun, StoreTable

__all__ = ["MOST_CURVES", "CurveRequest", "curve_answer", "run_numbers"]

MOST_CURVES = 200
"""Runs that are drawn at most."""
_AXES = ("step", "time", "epoch")
_BANDS = ("std", "range")
_BINS = range(50, 2001)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
# Significant digits of the values that are sent, and of places, which are steps of long trainings.
_DIGITS, _PLACE_DIGITS = 7, 12
_MOST_STROKES = 200


@dataclass(frozen=True)
class CurveRequest:
    """What is to be drawn.

    Attributes:
        metric: the scalar, by its name in MLflow.
        groups: numbers of the runs of each group, of which the mean is drawn; without means, all
            in one.
        means: whether means are drawn.
        axis: "step", "time" (seconds since the first value of the run) or "epoch".
        first: beginning of the range; minus infinity: all.
        last: its end; infinity: all.
        bins: number of bins of the axis, one per two or three pixels.
        weight: of the past in the moving average, from 0 to below 1; 0: not smoothed.
        band: what is drawn around a mean.
    """

    metric: str
    groups: Sequence[Sequence[int]]
    means: bool
    axis: str
    first: float
    last: float
    bins: int
    weight: float
    band: Band

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> CurveRequest:
        """Return the request of the fields of a query.

        Raises:
            ConfigError: a field is invalid.
        """
        groups = [run_numbers(part) for part in fields.get("runs", "").split(";") if part]
        number = sum(map(len, groups))
        if number > MOST_CURVES:
            raise ConfigError(f"runs: {number:,} runs; at most {MOST_CURVES} are drawn")
        band = _word(fields, "band", _BANDS)
        return cls(
            metric=fields.get("metric", ""),
            groups=groups,
            means=fields.get("means") == "yes",
            axis=_word(fields, "x", _AXES),
            first=_number(fields, "first", -math.inf),
            last=_number(fields, "last", math.inf),
            bins=min(max(int(_number(fields, "bins", 400)), _BINS.start), _BINS.stop - 1),
            weight=_share(fields, "smooth"),
            band=cast("Band", band),
        )


def run_numbers(text: str) -> list[int]:
    """Return the numbers of a list such as "0-3,7"; at most a million.

    Raises:
        ConfigError: it is not a list of numbers.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ConfigError(f"runs: {part!r} is not a number of a run, such as 3 or 0-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if len(found) + last - first > 1_000_000:
            raise ConfigError("runs: more than a million numbers")
        found += range(first, last + 1)
    return found


def curve_answer(table: StoreTable, request: CurveRequest) -> dict[str, Any]:
    """Return the curves of a request, as plain JSON.

    Args:
        table: the runs of the store.
        request: what is to be drawn.

    Returns:
        ``places`` (the axis), ``extent`` (first and last place of all values), ``shown`` (first and
        last place of the range, which is that of all values if it has none), ``limit`` (of the
        values that extend the axis; None for any), ``without`` (number of runs without the scalar)
        and ``unplaced`` (number of runs that have it, but no such axis); without means ``curves``:
        of each run its number, values at the places (None: no value; "": one that is not finite),
        the same smoothed, the places of values that are not finite, and its marks; with means
        ``groups``: of each group its place in the request, mean, low, high and count at the places.

    Raises:
        StoreError: a storage refused.
    """
    found: dict[int, Curve] = {}
    marks: dict[int, list[dict[str, Any]]] = {}
    answer: dict[str, Any] = {"without": 0, "unplaced": 0}
    runs = table.runs(number for group in request.groups for number in group)
    for run in runs:
        column = run.scalars().get(request.metric)
        axis = None if column is None else _Axis.of(request.axis, run, column)
        if column is None or axis is None:
            answer["without" if column is None else "unplaced"] += 1
            continue
        found[run.number] = axis.curve(column)
        if run.row is not None:
            marks[run.number] = _marks(run.row, axis)
    table.keep(runs)
    limit = usual_limit(curve.y for curve in found.values())
    answer["limit"] = None if math.isinf(limit) else limit
    extent = [(float(curve.x[0]), float(curve.x[-1])) for curve in found.values()]
    if not extent:
        return answer | {"places": [], "extent": None, "curves": [], "groups": []}
    begin, end = min(first for first, _ in extent), max(last for _, last in extent)
    first, last = max(begin, request.first), min(end, request.last)
    if not first <= last:
        first, last = begin, end
    smooth = {number: _smoothed(curve, request.weight) for number, curve in found.items()}
    grid = Grid.over(found.values(), first, last, request.bins)
    places = grid.centres if request.means else grid.places
    answer |= {
        "places": _texts(places, _PLACE_DIGITS),
        "extent": [begin, end],
        "shown": [first, last],
    }
    if request.means:
        return answer | {"groups": _groups(request, grid, smooth)}
    curves = [
        {
            "id": number,
            "values": _texts(grid.outline(curve)),
            "smooth": _texts(grid.outline(smooth[number])) if request.weight else None,
            "broken": _texts(_strokes(curve, first, last), _PLACE_DIGITS),
            "marks": marks[number],
        }
        for number, curve in found.items()
    ]
    return answer | {"curves": curves}


@dataclass(frozen=True)
class _Axis:
    """Where steps lie on an axis.

    Attributes:
        start: of the axis of time, seconds since the epoch; None for others.
        steps: int64 [N], ascending; None: the axis is that of steps.
        places: float64 [N] of these steps.
    """

    start: float | None = None
    steps: NDArray[np.int64] | None = None
    places: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, kind: str, run: ListedRun, column: Column) -> _Axis | None:
        """Return the axis of a run; None if it has no such axis."""
        if kind == "step":
            return cls()
        if kind == "time":
            start = min(float(one.times[0]) for one in run.scalars().values())
            steps, where = np.unique(column.steps, return_index=True)
            return cls(start, steps, column.times[where] - start)
        epochs = run.epochs()
        if epochs is None:
            return None
        finite = np.isfinite(epochs.values)
        if not finite.any():
            return None
        steps, where = np.unique(epochs.steps[finite], return_index=True)
        return cls(None, steps, epochs.values[finite][where])

    def curve(self, column: Column) -> Curve:
        """Return a column over the axis."""
        places = self.at(column.steps) if self.start is None else column.times - self.start
        order = np.argsort(places, kind="stable")
        return Curve(places[order], column.values[order])

    def at(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the places of steps, float64, shape as given."""
        if self.steps is None or self.places is None:
            return steps.astype(np.float64)
        return np.interp(steps, self.steps, self.places)


def _smoothed(curve: Curve, weight: float) -> Curve:
    return Curve(curve.x, moving_average(curve.y, weight))


def _groups(request: CurveRequest, grid: Grid, curves: Mapping[int, Curve]) -> list[dict[str, Any]]:
    found = []
    for place, numbers in enumerate(request.groups):
        members = [curves[number] for number in numbers if number in curves]
        if members:
            mean, low, high, reached = grid.means(members, request.band)
            fields = {"mean": _texts(mean), "low": _texts(low), "high": _texts(high)}
            found.append({"place": place, **fields, "count": reached.tolist()})
    return found


def _marks(row: Row, axis: _Axis) -> list[dict[str, Any]]:
    """Return the root causes among the findings of a run, with their places."""
    causes = [found for found in row.findings if found.cause]
    places = axis.at(np.array([found.step for found in causes], np.int64)).tolist()
    return [
        {
            "at": place,
            "rule": found.rule,
            "severity": found.severity,
            "step": found.step,
            "seen": found.seen,
        }
        for found, place in zip(causes, places, strict=True)
    ]


def _strokes(curve: Curve, first: float, last: float) -> NDArray[np.float64]:
    """Return some places of the values that are not finite."""
    bad = np.unique(curve.x[~np.isfinite(curve.y) & (curve.x >= first) & (curve.x <= last)])
    if len(bad) <= _MOST_STROKES:
        return bad
    return bad[np.linspace(0, len(bad) - 1, _MOST_STROKES).astype(np.intp)]


def _texts(values: NDArray[np.float64], digits: int = _DIGITS) -> list[float | str | None]:
    """Return numbers for JSON, rounded: None for NaN, "" for infinity."""
    finite = np.isfinite(values) & (values != 0)
    known = np.where(finite, values, 1.0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(known))))
        rounded = np.round(known * scale) / scale
    shown = np.where(finite & np.isfinite(rounded), rounded, values).astype(object)
    shown[np.isnan(values)] = None
    shown[np.isinf(values)] = ""
    found: list[float | str | None] = shown.tolist()
    return found


def _word(fields: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    given = fields.get(name) or words[0]
    if given not in words:
        raise ConfigError(f"{name}: {visible(given)[:40]!r}; give {' or '.join(words)}")
    return given


def _number(fields: Mapping[str, str], name: str, default: float) -> float:
    text = fields.get(name, "")
    try:
        found = float(text) if text else default
    except ValueError:
        found = math.nan
    if text and not math.isfinite(found):
        raise ConfigError(f"{name}: {visible(text)[:40]!r} is not a number")
    return found


def _share(fields: Mapping[str, str], name: str) -> float:
    found = _number(fields, name, 0.0)
    if not 0 <= found < 1:
        raise ConfigError(f"{name}: {found:g}; give a weight from 0 to below 1")
    return found
