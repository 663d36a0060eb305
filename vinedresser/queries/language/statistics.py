"""Reducing functions that are statistics, computed where the tensors are and joined by label."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import QueryError
from vinedresser.queries.language.context import Context
from vinedresser.queries.language.values import Array, ByLabel, Pending, Share, Tensors

__all__ = ["STATISTICS", "over_labels", "statistic"]


class _Part(NamedTuple):
    """Statistics of the elements of one tensor for one label.

    Attributes:
        size: number of elements.
        values: the statistics, in the order of `_Statistic.needs`.
    """

    size: int
    values: tuple[float, ...]


class _Statistic(NamedTuple):
    """How a function is computed from statistics of tensors.

    Attributes:
        needs: names of statistics; see `Numeric.statistic`.
        join: joins the parts of a label.
        of: the function of a list of numbers, for results by label.
    """

    needs: tuple[str, ...]
    join: Callable[[Sequence[_Part]], float]
    of: Callable[[NDArray[np.float64]], float]


def _norm(parts: Sequence[_Part]) -> float:
    return math.hypot(*(part.values[0] for part in parts))


def _sum(parts: Sequence[_Part]) -> float:
    return float(np.sum([part.values[0] for part in parts]))


def _mean(parts: Sequence[_Part]) -> float:
    if len(parts) == 1:
        return parts[0].values[0]
    filled = [part for part in parts if part.size]
    total = sum(part.size for part in filled)
    return sum(part.values[0] * part.size for part in filled) / total if total else math.nan


def _least(parts: Sequence[_Part]) -> float:
    return float(np.min([part.values[0] for part in parts if part.size] or [math.nan]))


def _greatest(parts: Sequence[_Part]) -> float:
    return float(np.max([part.values[0] for part in parts if part.size] or [math.nan]))


def _variance(parts: Sequence[_Part]) -> float:
    """Return the population variance, joined as by Chan et al. (1979)."""
    if len(parts) == 1:
        return parts[0].values[1]
    filled = [part for part in parts if part.size]
    total = sum(part.size for part in filled)
    if not total:
        return math.nan
    mean = _mean(parts)
    squares = sum(part.size * (part.values[1] + (part.values[0] - mean) ** 2) for part in filled)
    return squares / total


def _zeros(parts: Sequence[_Part]) -> float:
    return _mean(parts)


def _count(parts: Sequence[_Part]) -> float:
    return float(sum(round(part.size * (1 - part.values[0])) for part in parts if part.size))


STATISTICS: dict[str, _Statistic] = {
    "norm": _Statistic(("l2",), _norm, lambda x: float(np.linalg.norm(x))),
    "sum": _Statistic(("sum",), _sum, lambda x: float(np.sum(x))),
    "mean": _Statistic(("mean",), _mean, lambda x: float(np.mean(x))),
    "min": _Statistic(("min",), _least, lambda x: float(np.min(x))),
    "max": _Statistic(("max",), _greatest, lambda x: float(np.max(x))),
    "var": _Statistic(("mean", "variance"), _variance, lambda x: float(np.var(x))),
    "std": _Statistic(
        ("mean", "variance"), lambda parts: math.sqrt(_variance(parts)), lambda x: float(np.std(x))
    ),
    "zero_share": _Statistic(("zero_share",), _zeros, lambda x: float(np.mean(x == 0))),
    "share": _Statistic(
        ("zero_share",), lambda parts: 1 - _zeros(parts), lambda x: float(np.mean(x != 0))
    ),
    "count": _Statistic(("zero_share",), _count, lambda x: float(np.count_nonzero(x))),
    "nonfinite": _Statistic(
        ("nonfinite",), _sum, lambda x: float(np.count_nonzero(~np.isfinite(x)))
    ),
    "size": _Statistic((), lambda parts: float(sum(part.size for part in parts)), len),
}


def over_labels(function: Callable[[NDArray[np.float64]], Any], value: Any) -> Any:
    """Return a function of results: of those of all labels, or of a single number.

    Raises:
        QueryError: they are not numbers.
    """
    if not isinstance(value, ByLabel | Share | float):
        raise QueryError("a text has no statistics" if isinstance(value, str) else "no number")
    numbers = value.entries.values() if isinstance(value, ByLabel) else [value]
    if not numbers:
        return math.nan
    with np.errstate(all="ignore"):
        return function(np.array([float(number) for number in numbers]))


def statistic(context: Context, name: str, operand: Any) -> Pending:
    """Return a statistic of tensors, by label if the query groups.

    Args:
        context: the event.
        name: a key of `STATISTICS`.
        operand: tensors, a number or results by label.

    Raises:
        QueryError: the evaluation exceeds its budget, or the grouping does not fit.
    """
    formula = STATISTICS[name]
    if not isinstance(operand, Tensors):
        found = over_labels(formula.of, operand)
        return Pending(lambda _: found)
    arrays: list[Array] = []
    places: list[tuple[tuple[str | None, ...], int]] = []
    for piece in context.pieces(operand):
        arrays += [context.numeric.statistic(need, piece.rows) for need in formula.needs]
        places.append((piece.labels, piece.size))
        context.budget.check()

    def finish(values: Sequence[NDArray[np.float64]]) -> ByLabel | float:
        parts: dict[str | None, list[_Part]] = {}
        width = len(formula.needs)
        for number, (labels, size) in enumerate(places):
            columns = values[number * width : (number + 1) * width]
            for row, label in enumerate(labels):
                part = _Part(size, tuple(float(column[row]) for column in columns))
                parts.setdefault(label, []).append(part)
        return _labelled({label: formula.join(found) for label, found in parts.items()})

    return Pending(finish, arrays)


def _labelled(found: dict[str | None, float]) -> ByLabel | float:
    if None in found:
        return found[None]
    return ByLabel({label: value for label, value in found.items() if label is not None})
