"""Reducing functions that are not statistics: quantiles, histograms, the largest, similarities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import QueryError
from vinedresser.queries.language.context import Context
from vinedresser.queries.language.elementwise import combine_tensors
from vinedresser.queries.language.statistics import over_labels
from vinedresser.queries.language.values import (
    Array,
    ByLabel,
    Histogram,
    Pending,
    Tensors,
    Top,
)
from vinedresser.queries.naming import path_of

__all__ = ["MOST_BINS", "MOST_TOP", "cosine", "histogram", "largest", "quantile", "top"]

_Entry = TypeVar("_Entry", bound=tuple[Any, ...])
MOST_BINS = 1_000
MOST_TOP = 100


def quantile(context: Context, operand: Any, shares: Sequence[float]) -> Pending:
    """Return quantiles of a sample of at most 65,536 elements, with linear interpolation.

    One share gives a number, or numbers by label; several give a vector, and no grouping.
    """
    if not all(0 <= share <= 1 for share in shares) or not shares:
        raise QueryError("quantile: shares must be from 0 to 1, such as quantile(x, 0.9)")
    if len(shares) > 1 and context.by is not None:
        raise QueryError("quantile: several quantiles cannot be grouped; ask for one")

    def of(values: NDArray[np.float64]) -> Any:
        if not values.size:
            return math.nan
        with np.errstate(all="ignore"):
            found = np.quantile(values, shares)
        return float(found[0]) if len(shares) == 1 else found

    return _of_samples(context, operand, of)


def histogram(context: Context, operand: Any, arguments: Sequence[float]) -> Pending:
    """Return a histogram of a sample of at most 65,536 elements, without those not finite.

    Args:
        context: the event.
        operand: what is counted.
        arguments: number of bins, then lower and upper edge; without edges, those of the data.
    """
    count, edges = (arguments[0] if arguments else 64.0), arguments[1:]
    if count % 1 or not 1 <= count <= MOST_BINS:
        raise QueryError(f"histogram: bins must be a whole number from 1 to {MOST_BINS:,}")
    if edges and not (len(edges) == 2 and edges[0] < edges[1]):
        raise QueryError("histogram: edges are two numbers, such as histogram(x, 30, -1, 1)")

    def of(values: NDArray[np.float64]) -> Histogram:
        finite = values[np.isfinite(values)]
        limits = (edges[0], edges[1]) if edges else _limits(finite)
        counts, found = np.histogram(finite, int(count), limits)
        return Histogram(found, counts.astype(np.float64), bool(edges))

    return _of_samples(context, operand, of)


def _limits(finite: NDArray[np.float64]) -> tuple[float, float]:
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _of_samples(
    context: Context, operand: Any, of: Callable[[NDArray[np.float64]], Any]
) -> Pending:
    """Return a function of sampled elements, by label if the query groups."""
    if not isinstance(operand, Tensors):
        found = over_labels(of, operand)
        return Pending(lambda _: found)
    rows: dict[str | None, list[Array]] = {}
    wide: list[tuple[tuple[str | None, ...], Array]] = []
    numeric = context.numeric
    for piece in context.pieces(operand, sampled=True):
        if len(piece.labels) > 1:
            wide.append((piece.labels, numeric.sample(piece.rows)))
        else:
            rows.setdefault(piece.labels[0], []).append(piece.rows)
        context.budget.check()
    for label, several in rows.items():
        wide.append(((label,), numeric.sample(_joined(context, several))))

    def finish(values: Sequence[NDArray[np.float64]]) -> Any:
        found = {
            label: of(row)
            for (labels, _), sampled in zip(wide, values, strict=True)
            for label, row in zip(labels, sampled, strict=True)
        }
        if None in found:
            return found[None]
        # Histograms by label are a result of their own.
        numbers = all(isinstance(one, float) for one in found.values())
        return ByLabel(found) if numbers else found  # type: ignore[arg-type]

    return Pending(finish, [sampled for _, sampled in wide])


def _joined(context: Context, rows: list[Array]) -> Array:
    if len(rows) == 1:
        return rows[0]
    numeric = context.numeric
    for row in rows:
        context.budget.charge(prod(numeric.shape(row)) * numeric.widening(row)[0])
    return numeric.join(rows)


def top(context: Context, operand: Any, count: float) -> Pending:
    """Return the largest elements and where they are; NaN counts as the largest."""
    if count % 1 or not 1 <= count <= MOST_TOP:
        raise QueryError(f"top: the number must be a whole number from 1 to {MOST_TOP}")
    most = int(count)
    if isinstance(operand, ByLabel):
        pairs = [(float(value), label) for label, value in operand.entries.items()]
        found = Top(most, tuple(largest(pairs, most)))
        return Pending(lambda _: found)
    if not isinstance(operand, Tensors):
        raise QueryError("top: there is only a number; ask for it alone")
    if context.by is not None:
        raise QueryError(f"top: the largest elements have no {context.by}; reduce them first, as "
                         f"in top(norm(x), 3) by {context.by}")  # fmt: skip
    arrays, places = [], []
    for name in operand.names:
        value = operand.read(name)
        shape = context.numeric.shape(value)
        size = prod(shape)
        octets, converts = context.numeric.widening(value)
        held = context.budget.held
        context.budget.charge((8 + octets * converts) * size)
        if size:
            arrays.append(context.numeric.top(value, min(most, size)))
            places.append((path_of(name) if len(operand.names) > 1 else "", shape))
        context.budget.release(held)

    def finish(values: Sequence[NDArray[np.float64]]) -> Top:
        pairs = [
            (float(value), path + _index(int(place), shape))
            for (path, shape), found in zip(places, values, strict=True)
            for value, place in zip(*found, strict=True)
        ]
        return Top(most, tuple(largest(pairs, most)))

    return Pending(finish, arrays)


def largest(entries: list[_Entry], count: int) -> list[_Entry]:
    """Return the entries with the largest first items, in their order among equals; NaN first."""
    return sorted(entries, key=_largest_first)[:count]


def _largest_first(entry: tuple[Any, ...]) -> float:
    value: float = entry[0]
    return -math.inf if math.isnan(value) else -value


def _index(place: int, shape: tuple[int, ...]) -> str:
    return f"[{','.join(str(int(one)) for one in np.unravel_index(place, shape))}]" if shape else ""


def cosine(context: Context, left: Any, right: Any) -> Pending:
    """Return the cosine of the angle between tensors, by label if the query groups."""
    if not isinstance(left, Tensors) or not isinstance(right, Tensors):
        raise QueryError("cosine: needs two tensors")
    products = combine_tensors(context, "*", [left, right])
    assert isinstance(products, Tensors)
    numeric = context.numeric
    arrays: list[Array] = []
    labels: list[tuple[str | None, ...]] = []
    for operand, word in ((products, "sum"), (left, "l2"), (right, "l2")):
        for piece in context.pieces(operand):
            arrays.append(numeric.statistic(word, piece.rows))
            labels.append(piece.labels)
            context.budget.check()

    def finish(values: Sequence[NDArray[np.float64]]) -> ByLabel | float:
        if len(left.names) != len(right.names):
            raise QueryError("cosine: needs as many tensors on both sides")
        third = len(values) // 3
        parts: list[dict[str | None, list[float]]] = [{}, {}, {}]
        for place, (names, rows) in enumerate(zip(labels, values, strict=True)):
            for label, value in zip(names, rows, strict=True):
                parts[place // third].setdefault(label, []).append(float(value))
        found = {
            label: _cosine(terms, parts[1].get(label, []), parts[2].get(label, []))
            for label, terms in parts[0].items()
        }
        if None in found:
            return found[None]
        return ByLabel({label: value for label, value in found.items() if label is not None})

    return Pending(finish, arrays)


def _cosine(products: list[float], left: list[float], right: list[float]) -> float:
    norms = math.hypot(*left) * math.hypot(*right)
    return math.fsum(products) / norms if norms else math.nan
