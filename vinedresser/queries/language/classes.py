"""Functions of labels and predictions: right or wrong, accuracy, confusion."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import QueryError
from vinedresser.queries.language.context import Context
from vinedresser.queries.language.values import (
    Array,
    ByLabel,
    Confusion,
    Pending,
    Share,
    Tensors,
)

__all__ = [
    "MOST_CLASSES",
    "accuracy",
    "argmax",
    "class_numbers",
    "confusion",
    "correct",
    "single",
]

# A confusion of more classes exceeds the size of an answer.
MOST_CLASSES = 100


def argmax(context: Context, operand: Any) -> Tensors:
    """Return the places of the largest elements along the last axis."""
    if not isinstance(operand, Tensors):
        raise QueryError("argmax: needs a tensor")

    def read(name: str) -> Array:
        value = operand.read(name)
        shape = context.numeric.shape(value)
        if not shape or not shape[-1]:
            raise QueryError(f"argmax: {name} has the shape {list(shape)}")
        return context.argmax(value, len(shape) - 1)

    return Tensors(operand.names, read)


def correct(context: Context, labels: Any, predictions: Any) -> Tensors:
    """Return which predictions are right, of the shape of the labels as class numbers."""
    both = single(labels, "labels"), single(predictions, "predictions")

    def read(_: str) -> Array:
        truth, guess = class_numbers(context, *both)
        context.budget.charge(prod(context.numeric.shape(truth)))
        return context.numeric.binary("==", truth, guess)

    return Tensors(both[1].names, read)


def accuracy(context: Context, labels: Any, predictions: Any) -> Pending:
    """Return the share of right predictions, by label if the query groups."""
    arrays: list[Array] = []
    places: list[tuple[tuple[str | None, ...], int]] = []
    for piece in context.pieces(correct(context, labels, predictions)):
        arrays.append(context.numeric.statistic("zero_share", piece.rows))
        places.append((piece.labels, piece.size))

    def finish(values: Sequence[NDArray[np.float64]]) -> ByLabel | Share:
        found = {
            label: Share(round((1 - wrong) * size) if size else 0, size)
            for (labels, size), rows in zip(places, values, strict=True)
            for label, wrong in zip(labels, rows.tolist(), strict=True)
        }
        if None in found:
            return found[None]
        return ByLabel({label: value for label, value in found.items() if label is not None})

    return Pending(finish, arrays)


def confusion(context: Context, labels: Any, predictions: Any) -> Pending:
    """Return how often each class was predicted as each class."""
    if context.by is not None:
        raise QueryError("confusion cannot be grouped")
    both = single(labels, "labels"), single(predictions, "predictions")
    truth, guess = class_numbers(context, *both)
    shape = context.numeric.shape(both[1].read(both[1].names[0]))
    known = shape[1] if len(shape) > len(context.numeric.shape(truth)) else 0

    def finish(values: Sequence[NDArray[np.float64]]) -> Confusion:
        pair = [value.reshape(-1) for value in values]
        # Negative labels mean "ignore" in most losses.
        valid = np.isfinite(pair[0]) & np.isfinite(pair[1]) & (pair[0] >= 0) & (pair[1] >= 0)
        rows, columns = (one[valid] for one in pair)
        classes = int(max(rows.max(initial=-1) + 1, columns.max(initial=-1) + 1, known))
        if classes > MOST_CLASSES:
            raise QueryError(f"confusion: {classes:,} classes, and at most {MOST_CLASSES} fit")
        flat = rows.astype(np.int64) * classes + columns.astype(np.int64)
        counts = np.bincount(flat, minlength=classes * classes).reshape(classes, classes)
        return Confusion(counts.astype(np.float64))

    return Pending(finish, [truth, guess])


def single(operand: Any, told: str) -> Tensors:
    """Return an operand that is one tensor.

    Args:
        operand: an operand of a function.
        told: what it is, for the message.

    Raises:
        QueryError: it is not one tensor.
    """
    if not isinstance(operand, Tensors) or len(operand.names) != 1:
        several = f": it is {', '.join(operand.names[:3])}" if isinstance(operand, Tensors) else ""
        raise QueryError(f"{told} must be one tensor{several}")
    return operand


def class_numbers(context: Context, labels: Tensors, predictions: Tensors) -> tuple[Array, Array]:
    """Return labels and predictions as class numbers of the same shape.

    Raises:
        QueryError: their shapes do not fit.
    """
    numeric = context.numeric
    truth, guess = labels.read(labels.names[0]), predictions.read(predictions.names[0])
    shapes = [list(numeric.shape(truth)), list(numeric.shape(guess))]
    context.budget.charge(16 * prod(shapes[0]))
    if len(shapes[0]) == 2 and shapes[0][1] == 1 and shapes[1][:1] == shapes[0][:1]:
        truth = numeric.rows(truth, 0)[:, 0]
        shapes[0] = shapes[0][:1]
    if shapes[1] == shapes[0]:
        if len(shapes[0]) == 2 and numeric.is_float(guess):
            return context.argmax(truth, 1), context.argmax(guess, 1)
        if not numeric.is_float(guess):
            return truth, guess
    elif len(shapes[1]) == len(shapes[0]) + 1:
        if [shapes[1][0], *shapes[1][2:]] == shapes[0] and shapes[1][1] > 1:
            return truth, context.argmax(guess, 1)
        if shapes[1][:-1] == shapes[0] and shapes[1][-1] > 1:
            return truth, context.argmax(guess, len(shapes[1]) - 1)
    raise QueryError(
        f"predictions of the shape {shapes[1]} are neither class numbers nor one score per class "
        f"for labels of the shape {shapes[0]}; with one score for two classes, compare it, as in "
        "share((predictions > 0) == labels)"
    )
