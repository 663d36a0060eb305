"""Computing with numpy arrays: stored runs, and frameworks without a `Numeric` of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reductions.elementwise import elementwise_statistics
from vinedresser.store.reductions.sampling import sample_rows

__all__ = ["FUNCTIONS", "OPERATORS", "NumpyNumeric"]

_Array = NDArray[Any]

FUNCTIONS: dict[str, Callable[..., _Array]] = {
    "abs": np.abs,
    "-": np.negative,
    "log": np.log,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "sign": np.sign,
    "isnan": np.isnan,
    "isfinite": np.isfinite,
    "not": np.logical_not,
}
OPERATORS: dict[str, Callable[..., _Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.mod,
    "**": np.power,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}


class NumpyNumeric:
    """Computes with numpy arrays, including those with dtypes of `ml_dtypes`; see `Numeric`.

    Args:
        channels_last: channels are the last axis, as in Keras.
    """

    def __init__(self, *, channels_last: bool = False) -> None:
        self.channels_last = channels_last

    def owns(self, value: Any) -> bool:
        """See `Numeric.owns`."""
        return isinstance(value, np.ndarray | np.generic)

    def shape(self, x: _Array) -> tuple[int, ...]:
        """See `Numeric.shape`."""
        return x.shape

    def is_float(self, x: _Array) -> bool:
        """See `Numeric.is_float`."""
        return x.dtype.kind not in "biu"

    def widening(self, x: _Array) -> tuple[int, bool]:
        """See `Numeric.widening`."""
        wide = _wide_dtype(x)
        return wide.itemsize, wide != x.dtype

    def unary(self, operation: str, x: _Array) -> _Array:
        """See `Numeric.unary`."""
        with np.errstate(all="ignore"):
            return FUNCTIONS[operation](_widened(x))

    def binary(self, operation: str, left: _Array | float, right: _Array | float) -> _Array:
        """See `Numeric.binary`."""
        with np.errstate(all="ignore"):
            return OPERATORS[operation](_widened(left), _widened(right))

    def choose(
        self, condition: _Array | float, left: _Array | float, right: _Array | float
    ) -> _Array:
        """See `Numeric.choose`."""
        return np.asarray(np.where(np.asarray(condition) != 0, _widened(left), _widened(right)))

    def argmax(self, x: _Array, axis: int) -> _Array:
        """See `Numeric.argmax`."""
        return np.asarray(np.argmax(_widened(x), axis))

    def sizes(self, tensors: Sequence[_Array]) -> list[int] | None:
        """See `Numeric.sizes`."""
        converted = any(self.widening(tensor)[1] for tensor in tensors)
        return None if converted else [tensor.size for tensor in tensors]

    def statistic(self, name: str, rows: _Array) -> NDArray[np.float64]:
        """See `Numeric.statistic`."""
        return elementwise_statistics(rows, (name,))[name]

    def statistic_of_each(self, name: str, tensors: Sequence[_Array]) -> NDArray[np.float64]:
        """See `Numeric.statistic_of_each`."""
        return np.concatenate([self.statistic(name, tensor.reshape(1, -1)) for tensor in tensors])

    def sample(self, rows: _Array) -> _Array:
        """See `Numeric.sample`."""
        return sample_rows(rows)

    def rows(self, x: _Array, axis: int | None) -> _Array:
        """See `Numeric.rows`."""
        if axis is None:
            return x.reshape(1, -1)
        moved = np.moveaxis(x, axis, 0)
        return moved.reshape(len(moved), -1) if x.size else moved.reshape(len(moved), 0)

    def select(self, x: _Array, mask: _Array) -> _Array:
        """See `Numeric.select`."""
        return np.asarray(x[mask != 0])

    def join(self, rows: Sequence[_Array]) -> _Array:
        """See `Numeric.join`."""
        return np.concatenate([_widened(row) for row in rows], axis=1)

    def top(self, x: _Array, count: int) -> NDArray[np.float64]:
        """See `Numeric.top`."""
        flat = _widened(x).reshape(-1)
        # Like torch, numpy sorts NaN behind all numbers.
        places = np.argpartition(flat, flat.size - count)[flat.size - count :]
        places = places[np.argsort(flat[places], kind="stable")[::-1]]
        return np.stack([flat[places].astype(np.float64), places.astype(np.float64)])

    def fetch(self, values: Sequence[_Array]) -> list[NDArray[np.float64]]:
        """See `Numeric.fetch`."""
        return [np.asarray(value).astype(np.float64) for value in values]


def _wide_dtype(x: _Array) -> np.dtype[Any]:
    if x.dtype.kind == "c":
        return np.dtype(np.float64)
    if x.dtype.kind in "biu":
        return np.dtype(np.float64)
    # The dtypes of ml_dtypes have the kind "V".
    return x.dtype if x.dtype in (np.float32, np.float64) else np.dtype(np.float32)


def _widened(x: _Array | float) -> Any:
    if not isinstance(x, np.ndarray | np.generic):
        return x
    if x.dtype.kind == "c":
        return np.abs(x.astype(np.complex128))
    return x.astype(_wide_dtype(x), copy=False)
