"""Inputs and outputs of models as named parts, each with one row per request."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Parts",
    "copied",
    "fetched",
    "has_rows",
    "host_array",
    "is_frame",
    "parts_of",
    "row_count",
    "size_of",
    "taken",
]

# Values with one row per request, by name; "" for a single unnamed one.
Parts = dict[str, Any]

# Approximate memory of a value of a list, in bytes.
_ITEM_BYTES = 64


def has_rows(value: Any) -> bool:
    """Return whether a value is an array with at least one axis, a DataFrame or a list."""
    if _is_array(value):
        return len(value.shape) > 0
    return isinstance(value, list | tuple) or is_frame(value)


def is_frame(value: Any) -> bool:
    """Return whether a value is a pandas DataFrame, without importing pandas."""
    return type(value).__name__ == "DataFrame" and hasattr(value, "iloc")


def parts_of(value: Any) -> Parts:
    """Return the parts of the inputs or outputs of requests.

    Args:
        value: an array or tensor [requests, ...] of any framework; a DataFrame; a mapping of
            columns; a list of records (mappings), of rows, or of strings; a tuple of arrays; or a
            single record, number or string, which is one request.

    Returns:
        Arrays, tensors or lists with one row per request, by name: names of columns, positions in
        a tuple, or "" for a single array or list.
    """
    if is_frame(value):
        return {str(name): value[name].to_numpy() for name in value.columns}
    if isinstance(value, Mapping):
        several = any(has_rows(one) for one in value.values())
        return {str(name): one if several else [one] for name, one in value.items()}
    if isinstance(value, list | tuple):
        return _list_parts(value)
    return {"": value if has_rows(value) else [value]}


def _list_parts(values: Sequence[Any]) -> Parts:
    if values and all(isinstance(value, Mapping) for value in values):
        names = list(dict.fromkeys(str(name) for value in values for name in value))
        return {name: [value.get(name) for value in values] for name in names}
    if isinstance(values, tuple) and values and all(_is_array(value) for value in values):
        return {"": values[0]} if len(values) == 1 else {str(n): v for n, v in enumerate(values)}
    return {"": list(values)}


def row_count(value: Any) -> int:
    """Return the number of requests in inputs or outputs; see `parts_of`.

    Raises:
        ValueError: the parts have different numbers of rows, or there are none.
    """
    if _is_array(value) and value.shape:
        return int(value.shape[0])
    counts = {name: _length(part) for name, part in parts_of(value).items()}
    if len(set(counts.values())) != 1 or None in counts.values():
        listed = ", ".join(f"{name or 'unnamed'}: {count}" for name, count in counts.items())
        raise ValueError(f"every part needs one row per request, but the rows are {listed or 0}")
    return next(count for count in counts.values() if count is not None)


def copied(value: Any, rows: Sequence[int] | None) -> Any:
    """Return a copy of some rows that later changes of the value do not reach.

    Tensors are copied on their device. Values inside lists are copied one level deep.

    Args:
        value: inputs or outputs; see `parts_of`.
        rows: the rows; None: all.
    """
    if isinstance(value, np.ndarray):
        return value.copy() if rows is None else value[list(rows)]
    if hasattr(value, "detach"):
        kept = value.detach()
        return kept.clone() if rows is None else kept[list(rows)]
    if hasattr(value, "iloc"):
        return _copied_frame(value, rows)
    if isinstance(value, Mapping):
        single = not any(has_rows(one) for one in value.values())
        return dict(value) if single else {name: copied(one, rows) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return _copied_list(value, rows)
    # Tensors of TensorFlow and JAX are immutable.
    return value if rows is None or not has_rows(value) else np.asarray(value)[list(rows)]


def _copied_frame(frame: Any, rows: Sequence[int] | None) -> Any:
    """Return a copy of some rows of a DataFrame or Series of pandas."""
    if rows is not None:
        return frame.iloc[list(rows)]
    # Since version 3, pandas copies when either of the two is modified.
    lazy = int(sys.modules["pandas"].__version__.partition(".")[0]) >= 3
    return frame.copy(deep=not lazy)


def _copied_list(values: Sequence[Any], rows: Sequence[int] | None) -> Any:
    if isinstance(values, tuple) and values and all(_is_array(value) for value in values):
        return tuple(copied(value, rows) for value in values)
    chosen = values if rows is None else [values[row] for row in rows]
    return [dict(one) if isinstance(one, Mapping) else one for one in chosen]


def fetched(value: Any) -> Any:
    """Return copied inputs or outputs with the tensors of other devices in host memory."""
    if hasattr(value, "detach"):
        return value if value.device.type == "cpu" else value.cpu()
    if isinstance(value, dict):
        return {name: fetched(one) for name, one in value.items()}
    return tuple(map(fetched, value)) if isinstance(value, tuple) else value


def taken(parts: Parts, rows: Sequence[int]) -> Parts:
    """Return some rows of parts."""
    return {
        name: part[list(rows)] if _is_array(part) else [part[row] for row in rows]
        for name, part in parts.items()
    }


def host_array(value: Any) -> NDArray[Any]:
    """Return a part as a numpy array in host memory: numbers, booleans, or objects.

    Args:
        value: an array, a tensor of any framework on any device, or a list.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        # Numpy has no such dtype.
        narrow = "bfloat16" in str(tensor.dtype) or "float8" in str(tensor.dtype)
        return np.asarray((tensor.float() if narrow else tensor).numpy())
    if isinstance(value, list):
        return _list_array(value)
    return np.asarray(value)


def size_of(value: Any) -> int:
    """Return the approximate memory of inputs or outputs in bytes."""
    size = getattr(value, "nbytes", None)
    if isinstance(size, int | np.integer):
        return int(size)
    if is_frame(value):
        return _ITEM_BYTES * int(value.size)
    if isinstance(value, Mapping | list | tuple):
        return sum(map(size_of, value.values() if isinstance(value, Mapping) else value))
    return _ITEM_BYTES + (len(value) if isinstance(value, bytes | str) else 0)


def _list_array(values: list[Any]) -> NDArray[Any]:
    if any(_is_array(value) for value in values):
        return np.stack([host_array(value) for value in values])
    try:
        array = np.asarray(values)
    except ValueError:
        # Rows of different lengths.
        array = np.empty(len(values), object)
        array[:] = values
        return array
    # Numpy turns [1, "a"] into strings, and None into an object.
    if array.dtype.kind in "US" and not all(isinstance(value, str) for value in values):
        return np.asarray(values, object)
    return array


def _length(part: Any) -> int | None:
    """Return the number of rows of a part; None for a single value."""
    if _is_array(part):
        return int(part.shape[0]) if part.shape else None
    return len(part) if isinstance(part, list | tuple) else None


def _is_array(value: Any) -> TypeGuard[Any]:
    return hasattr(value, "shape") and hasattr(value, "dtype")
