"""Reducing functions that are statistics, computed where the tensors are and joined by label."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import QueryError
from vinedresser.queries.language.context import Context, KnownPiece, Piece, Wholes
from vinedresser.queries.language.values import Array, ByLabel, Pending, Share, Tensors

__all__ = ["STATISTICS", "over_labels", "statistic"]


class _Part(NamedTuple):
    """Statistics of the elements of one tensor for one label.

    Attributes:
        size: number of elements; None if it is unknown.
        values: the statistics, in the order of `_Statistic.needs`.
    """

    size: int | None
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
    itself: bool = False


def _norm(parts: Sequence[_Part]) -> float:
    return math.hypot(*(part.values[0] for part in parts))


def _sum(parts: Sequence[_Part]) -> float:
    return float(np.sum([part.values[0] for part in parts]))


def _filled(parts: Sequence[_Part]) -> list[tuple[int, tuple[float, ...]]]:
    """Return size and values of the parts that have elements."""
    found = [(part.size, part.values) for part in parts if part.size is not None]
    if len(found) < len(parts):
        raise QueryError(
            "the sizes of these tensors are unknown, since only their statistics were stored: ask "
            "by tensor, or for norm, sum, min or max"
        )
    return [(size, values) for size, values in found if size]


def _mean(parts: Sequence[_Part]) -> float:
    if len(parts) == 1:
        return parts[0].values[0]
    filled = _filled(parts)
    total = sum(size for size, _ in filled)
    return sum(values[0] * size for size, values in filled) / total if total else math.nan


def _least(parts: Sequence[_Part]) -> float:
    return float(np.min([part.values[0] for part in parts if part.size != 0] or [math.nan]))


def _greatest(parts: Sequence[_Part]) -> float:
    return float(np.max([part.values[0] for part in parts if part.size != 0] or [math.nan]))


def _variance(parts: Sequence[_Part]) -> float:
    """Return the population variance, joined as by Chan et al. (1979)."""
    if len(parts) == 1:
        return parts[0].values[1]
    filled = _filled(parts)
    total = sum(size for size, _ in filled)
    if not total:
        return math.nan
    mean = _mean(parts)
    squares = sum(size * (values[1] + (values[0] - mean) ** 2) for size, values in filled)
    return squares / total


def _count(parts: Sequence[_Part]) -> float:
    return float(sum(round(size * (1 - values[0])) for size, values in _filled(parts)))


def _size(parts: Sequence[_Part]) -> float:
    return float(sum(size for size, _ in _filled(parts)))


STATISTICS: dict[str, _Statistic] = {
    "norm": _Statistic(("l2",), _norm, lambda x: float(np.linalg.norm(x)), itself=True),
    "sum": _Statistic(("sum",), _sum, lambda x: float(np.sum(x)), itself=True),
    "mean": _Statistic(("mean",), _mean, lambda x: float(np.mean(x)), itself=True),
    "min": _Statistic(("min",), _least, lambda x: float(np.min(x))),
    "max": _Statistic(("max",), _greatest, lambda x: float(np.max(x))),
    "var": _Statistic(("mean", "variance"), _variance, lambda x: float(np.var(x))),
    "std": _Statistic(
        ("mean", "variance"), lambda parts: math.sqrt(_variance(parts)), lambda x: float(np.std(x))
    ),
    "zero_share": _Statistic(("zero_share",), _mean, lambda x: float(np.mean(x == 0))),
    "share": _Statistic(
        ("zero_share",), lambda parts: 1 - _mean(parts), lambda x: float(np.mean(x != 0))
    ),
    "count": _Statistic(("zero_share",), _count, lambda x: float(np.count_nonzero(x))),
    "nonfinite": _Statistic(
        ("nonfinite",), _sum, lambda x: float(np.count_nonzero(~np.isfinite(x)))
    ),
    "size": _Statistic((), _size, len),
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
    wholes = context.wholes(operand) if formula.needs else None
    if wholes is not None:
        return _of_wholes(context, formula, wholes)
    known = context.known_wholes(operand, formula.needs)
    if known is not None:
        result = _joined(formula, _by_label(known.labels, known.sizes, known.columns))
        return Pending(lambda _: result)
    gathered = _Gathered(context, formula)
    for piece in context.parts(operand, formula.needs):
        gathered.add(piece)
    return gathered.pending()


def _of_wholes(context: Context, formula: _Statistic, wholes: Wholes) -> Pending:
    """Return a statistic of tensors that are reduced together."""
    numeric, arrays = context.numeric, wholes.arrays
    found = [numeric.statistic_of_each(need, arrays) for need in formula.needs]
    context.budget.check()

    def finish(values: Sequence[NDArray[np.float64]]) -> ByLabel | float:
        columns = [column.tolist() for column in values]
        labels = [label for label in wholes.labels if label is not None]
        if formula.itself and len({*labels}) == len(columns[0]):
            # Nothing is to be joined.
            return ByLabel(dict(zip(labels, columns[0], strict=True)))
        return _joined(formula, _by_label(wholes.labels, wholes.sizes, columns))

    return Pending(finish, found)


def _by_label(
    labels: Sequence[str | None], sizes: Sequence[int | None], columns: Sequence[list[float]]
) -> dict[str | None, list[_Part]]:
    """Return the parts of each label.

    Args:
        labels: label of each tensor.
        sizes: number of its elements.
        columns: its statistics, a list for each.
    """
    parts: dict[str | None, list[_Part]] = {}
    for label, size, row in zip(labels, sizes, zip(*columns, strict=True), strict=True):
        parts.setdefault(label, []).append(_Part(size, row))
    return parts


class _Place(NamedTuple):
    """Where the statistics of a piece are.

    Attributes:
        labels: a label for each row.
        size: number of elements of a row; None if it is unknown.
        first: number of its first array.
        known: the statistics, if they are known.
    """

    labels: tuple[str | None, ...]
    size: int | None
    first: int = 0
    known: tuple[float, ...] | None = None


class _Gathered:
    """The pieces of a statistic."""

    def __init__(self, context: Context, formula: _Statistic) -> None:
        self._context = context
        self._formula = formula
        self._arrays: list[Array] = []
        self._places: list[_Place] = []

    def add(self, piece: Piece | KnownPiece) -> None:
        needs = self._formula.needs
        if isinstance(piece, KnownPiece):
            self._places.append(_Place((piece.label,), piece.size, known=piece.values))
        else:
            self._places.append(_Place(piece.labels, piece.size, len(self._arrays)))
            self._arrays += [self._context.numeric.statistic(need, piece.rows) for need in needs]
            self._context.budget.check()

    def pending(self) -> Pending:
        return Pending(self._finish, self._arrays)

    def _finish(self, values: Sequence[NDArray[np.float64]]) -> ByLabel | float:
        parts: dict[str | None, list[_Part]] = {}
        width = len(self._formula.needs)
        for place in self._places:
            columns = values[place.first : place.first + width]
            for row, label in enumerate(place.labels):
                found = place.known
                if found is None:
                    found = tuple(float(column[row]) for column in columns)
                parts.setdefault(label, []).append(_Part(place.size, found))
        return _joined(self._formula, parts)


def _joined(formula: _Statistic, parts: dict[str | None, list[_Part]]) -> ByLabel | float:
    """Return the statistic of each label, given its parts."""
    found = {label: formula.join(several) for label, several in parts.items()}
    if None in found:
        return found[None]
    return ByLabel({label: value for label, value in found.items() if label is not None})
