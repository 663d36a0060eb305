"""Elementwise functions and operators, of tensors on their device and of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from vinedresser.errors import QueryError
from vinedresser.queries.language.context import Context
from vinedresser.queries.language.values import Array, ByLabel, Share, Tensors, number_of
from vinedresser.queries.naming import label_of, path_of
from vinedresser.queries.numpy_numeric import FUNCTIONS, OPERATORS

__all__ = ["OF_MAGNITUDES", "UNARY", "combine_results", "combine_tensors"]

UNARY = ("abs", "log", "exp", "sqrt", "sign", "isnan", "isfinite")

# "-" is that of two operands.
_RESULTS: dict[str, Callable[..., Any]] = {**FUNCTIONS, **OPERATORS, "where": np.where}

# Statistics of the magnitudes as statistics of the elements.
OF_MAGNITUDES = {
    "l2": "l2",
    "sum": "l1",
    "mean": "abs_mean",
    "min": "abs_min",
    "max": "abs_max",
    "variance": "abs_variance",
    "zero_share": "zero_share",
    "nonfinite": "nonfinite",
}


def combine_results(operation: str, operands: Sequence[Any]) -> Any:
    """Return a function of results: numbers, results by label, samples.

    Args:
        operation: name of the function or operator.
        operands: results; by label, they need the same labels.

    Raises:
        QueryError: they do not fit together.
    """
    for operand in operands:
        if not isinstance(operand, float | Share | ByLabel | np.ndarray):
            raise QueryError(f"{operation} cannot be applied to {_kind(operand)}")
    labelled = [operand.entries for operand in operands if isinstance(operand, ByLabel)]
    if not labelled:
        return _apply(operation, operands)
    labels = [label for label in labelled[0] if all(label in entries for entries in labelled)]
    if not labels and any(labelled):
        raise QueryError(f"{operation}: the operands have no label in common")
    return ByLabel(
        {
            label: _apply(
                operation,
                [one.entries[label] if isinstance(one, ByLabel) else one for one in operands],
            )
            for label in labels
        }
    )


def _apply(operation: str, operands: Sequence[Any]) -> Any:
    function = FUNCTIONS["-"] if (operation, len(operands)) == ("-", 1) else _RESULTS[operation]
    numbers = [number_of(operand) for operand in operands]
    with np.errstate(all="ignore"):
        if operation in ("and", "or") and len(numbers) > 2:
            found = numbers[0]
            for number in numbers[1:]:
                found = function(found, number)
        else:
            found = function(*numbers)
    found = np.asarray(found, np.float64)
    return found if found.ndim else float(found)


def _kind(value: object) -> str:
    return "a text" if isinstance(value, str) else f"the result of {type(value).__name__.lower()}"


def combine_tensors(context: Context, operation: str, operands: Sequence[Any]) -> Any:
    """Return an elementwise function of tensors; of results if there is no tensor.

    Nothing is computed before the tensors are read.

    Args:
        context: the event.
        operation: name of the function or operator.
        operands: tensors, numbers, and results by label. Tensors of several names need the same
            paths; a single tensor goes with each of them.

    Raises:
        QueryError: they do not fit together.
    """
    tensors = [operand for operand in operands if isinstance(operand, Tensors)]
    if not tensors:
        return combine_results(operation, operands)
    base = max(tensors, key=lambda tensor: len(tensor.names))
    others = [_partners(base, operand, operation, context.by) for operand in operands]

    def read(name: str) -> Array:
        values = [other(name) for other in others]
        return _elementwise(context, operation, values)

    def known(name: str, reduction: str) -> float | None:
        of_it = OF_MAGNITUDES.get(reduction)
        return None if of_it is None else base.known(name, of_it)

    return Tensors(base.names, read, known) if operation == "abs" else Tensors(base.names, read)


def _partners(
    base: Tensors, operand: Any, operation: str, by: str | None
) -> Callable[[str], Array]:
    """Return a function from a name of the first tensors to the operand that goes with it."""
    if isinstance(operand, ByLabel):
        entries, grouping = operand.entries, by or "tensor"
        if grouping not in ("layer", "tensor"):
            raise QueryError(f"{operation}: results by {grouping} do not go with tensors")
        return lambda name: float(entries.get(label_of(name, grouping), np.nan))
    if not isinstance(operand, Tensors):
        if isinstance(operand, str | np.ndarray):
            raise QueryError(f"{operation} cannot be applied to {_kind(operand)}")
        return lambda _: float(operand)
    if len(operand.names) == 1:
        return lambda _: operand.read(operand.names[0])
    paths = {path_of(name): name for name in operand.names}
    missing = [name for name in base.names if path_of(name) not in paths]
    if missing:
        raise QueryError(f"{operation}: {missing[0]} has no counterpart among the other tensors")
    return lambda name: operand.read(paths[path_of(name)])


def _elementwise(context: Context, operation: str, values: Sequence[Any]) -> Array:
    numeric = context.numeric
    shapes = [numeric.shape(value) for value in values if numeric.owns(value)]
    if not shapes:
        raise QueryError(f"{operation}: there is no tensor here")
    shape = _fitting(operation, shapes)
    for value in values:
        if numeric.owns(value):
            octets, converts = numeric.widening(value)
            context.budget.charge(octets * converts * prod(numeric.shape(value)))
    context.budget.charge(prod(shape) * max(numeric.widening(value)[0]
                          for value in values if numeric.owns(value)))  # fmt: skip
    if operation == "where":
        return numeric.choose(*values)
    if len(values) == 1:
        return numeric.unary(operation, values[0])
    found = values[0]
    for value in values[1:]:
        found = numeric.binary(operation, found, value)
    return found


def _fitting(operation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of the result; unlike numpy, [samples, 1] and [samples] do not fit."""
    axes = {len(shape) for shape in shapes if prod(shape) != 1}
    try:
        if len(axes) <= 1:
            return np.broadcast_shapes(*shapes)
    except ValueError:
        pass
    told = " and ".join(str(list(shape)) for shape in shapes)
    raise QueryError(f"{operation}: tensors of the shapes {told} do not fit")
