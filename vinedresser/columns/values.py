"""Columns of values: numbers, booleans, or short texts with None for missing ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LONGEST_TEXT", "column", "joined"]

# Characters of a text in a column; longer ones are cut.
LONGEST_TEXT = 64

_INT64 = np.iinfo(np.int64)


def column(values: NDArray[Any], *, from_list: bool = False) -> NDArray[Any]:
    """Return values as one of the dtypes that columns have.

    Args:
        values: [rows]; any dtype.
        from_list: the values were a list, as in JSON, where 1 and 1.0 are the same number: integers
            become floats, so that the dtype does not depend on the values.

    Returns:
        [rows]; float64 with NaN for missing numbers, int64, bool, or objects (str or None).
    """
    kind = values.dtype.kind
    if kind == "b":
        return values.astype(bool)
    if kind in "iu":
        large = kind == "u" and values.size > 0 and int(values.max()) > _INT64.max
        return values.astype(np.float64 if from_list or large else np.int64)
    if kind == "f":
        return values.astype(np.float64)
    if kind == "O":
        numbers = _numbers(values)
        if numbers is not None:
            return numbers
    return _texts(values)


def joined(pieces: list[NDArray[Any] | None], counts: list[int]) -> NDArray[Any]:
    """Return the pieces of one column as a single one.

    Args:
        pieces: [rows, ...] each; None where the column is missing.
        counts: number of rows of each piece.

    Returns:
        [sum of the rows, ...]; missing pieces are NaN or None.
    """
    present = [piece for piece in pieces if piece is not None]
    if any(piece.dtype == object for piece in present):
        # Numbers and texts under one name.
        present = [piece if piece.dtype == object else _texts(piece) for piece in present]
        pieces = [None if one is None else _texts(one) for one in pieces]
        filler: Any = None
    else:
        filler = np.nan
    if len(present) == len(pieces):
        dtype = np.result_type(*present)
        # Numpy would turn True into 1, beside other numbers.
        if dtype.kind == "b" or all(piece.dtype.kind != "b" for piece in present):
            return np.concatenate([one for one in pieces if one is not None])
    shape = present[0].shape[1:]
    dtype = np.dtype(object) if filler is None else np.dtype(np.float64)
    if filler is not None and all(piece.dtype == np.float32 for piece in present):
        dtype = np.dtype(np.float32)
    whole = [
        np.full((count, *shape), filler, dtype) if piece is None else piece.astype(dtype)
        for piece, count in zip(pieces, counts, strict=True)
    ]
    return np.concatenate(whole)


def _numbers(values: NDArray[Any]) -> NDArray[Any] | None:
    """Return objects as booleans or numbers, with NaN for None; None if some are neither."""
    kinds = {type(one) for one in values.tolist()}
    if kinds == {bool}:
        return values.astype(bool)
    if kinds - {type(None), bool, int, float} or kinds == {type(None)}:
        return None
    # Not astype: an integer of JSON may be larger than any int64.
    return np.array([np.nan if value is None else float(value) for value in values], np.float64)


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    """Return values as an object array of str and None."""
    found = np.empty(len(values), object)
    found[:] = [None if _is_missing(one) else str(one)[:LONGEST_TEXT] for one in values.tolist()]
    return found


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
