"""Columns of rows: what may be in them, and how they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vinedresser.errors import DriftError

__all__ = ["Kind", "as_categories", "kind_of", "read_column", "read_times", "row_count"]

Kind = Literal["number", "category", "embedding"]


def row_count(columns: Mapping[str, Any]) -> int:
    """Return the number of rows of columns.

    Raises:
        DriftError: there are no columns, one is not an array of one or two dimensions, or their
            lengths differ.
    """
    if not isinstance(columns, Mapping) or not columns:
        raise DriftError("columns: expected a mapping of names to arrays, with at least one entry")
    lengths: dict[str, int] = {}
    for name, values in columns.items():
        shape = np.shape(values)
        if not isinstance(name, str) or len(shape) not in (1, 2):
            raise DriftError(
                f"column {name!r}: has the shape {list(shape)}; expected a name and [rows], or "
                "[rows, dimensions] for an embedding"
            )
        lengths[name] = shape[0]
    if len(set(lengths.values())) > 1:
        shortest, longest = (
            min(lengths, key=lengths.__getitem__),
            max(lengths, key=lengths.__getitem__),
        )
        raise DriftError(
            f"columns of different lengths: {shortest!r} has {lengths[shortest]} rows, {longest!r} "
            f"has {lengths[longest]}"
        )
    return next(iter(lengths.values()))


def kind_of(values: Any) -> Kind:
    """Return what a column contains, by its type.

    Args:
        values: [rows] of numbers, booleans, strings or objects, or [rows, dimensions] of numbers.

    Raises:
        DriftError: it is none of these.
    """
    array = np.asarray(values)
    if array.ndim == 2:
        if array.dtype.kind not in "fiub":
            raise DriftError(f"an embedding of type {array.dtype}; expected numbers")
        return "embedding"
    if array.dtype.kind in "fiub":
        return "number"
    if array.dtype.kind == "O" and _numbers(array) and not _empty(array):
        return "number"
    if array.dtype.kind in "OUST":
        return "category"
    raise DriftError(f"values of type {array.dtype}; expected numbers, booleans or strings")


def read_column(values: Any, kind: Kind, width: int) -> NDArray[Any] | None:
    """Return a column as an array of its kind, or None if it is of another kind.

    Args:
        kind: the kind expected.
        width: dimensions of an embedding.

    Returns:
        float64 [rows] of a number, NaN where it is missing; an object array [rows] of strings and
        None of a category; float64 [rows, width] of an embedding.
    """
    assert kind in get_args(Kind)
    array = np.asarray(values)
    if kind == "embedding":
        fits = array.ndim == 2 and array.shape[1] == width and array.dtype.kind in "fiub"
        return array.astype(np.float64) if fits else None
    if array.ndim != 1:
        return None
    if kind == "category":
        return as_categories(array)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    if array.dtype.kind == "O" and _numbers(array):
        return np.array([np.nan if one is None else float(one) for one in array])
    return None


def read_times(times: ArrayLike, rows: int) -> NDArray[np.float64]:
    """Return times in seconds, float64 [rows].

    Raises:
        DriftError: these are not finite numbers, one for each row.
    """
    array = np.asarray(times)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]").astype(np.float64) / 1e6
    if array.dtype.kind not in "fiu" or array.shape != (rows,) or not np.isfinite(array).all():
        raise DriftError(
            f"times: expected {rows} finite numbers of seconds or dates, one for each row"
        )
    return array.astype(np.float64)


def as_categories(array: NDArray[Any]) -> NDArray[np.object_]:
    """Return values as strings, and None where they are missing."""
    found = np.empty(len(array), object)
    for row, one in enumerate(array.tolist()):
        missing = one is None or (isinstance(one, float) and math.isnan(one))
        found[row] = None if missing else _text(one)
    return found


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    # A column of integers with a missing one arrives as floats.
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _numbers(array: NDArray[Any]) -> bool:
    """Return whether objects are numbers or None."""
    return all(one is None or isinstance(one, Real) for one in array.tolist())


def _empty(array: NDArray[Any]) -> bool:
    """Return whether all objects are None."""
    return all(one is None for one in array.tolist())
