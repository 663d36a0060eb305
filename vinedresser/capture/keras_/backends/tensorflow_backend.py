"""The TensorFlow backend, and the copying of its tensors into recordings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.keras_.backends.tensorflow_operations import TensorFlowOperations
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import ArrayCopier, LiveArray
from vinedresser.capture.shield import Shield
from vinedresser.store.dtypes import dtype_name
from vinedresser.store.reductions import (
    Statistics,
    channel_axis,
    compute_statistics,
    plan_reductions,
)
from vinedresser.store.reductions.elementwise import elementwise_statistics
from vinedresser.store.reductions.sampling import affordable_rows, strided_rows
from vinedresser.store.step_record import HostTensor

__all__ = ["TensorFlowBackend", "TensorFlowCopier", "fast_statistics"]

_COMPOSITE = (tf.IndexedSlices, tf.SparseTensor, tf.RaggedTensor)
_EAGER = tf.__internal__.EagerTensor
# Rows are summed in float32, their sums in float64; 1024 elements lose no accuracy.
_ROW = 1 << 10
# Elements of a piece that fits into the processor cache.
_PIECE = 1 << 17
# The squares of smaller float32 numbers are denormal or zero.
_MIN_RMS = 1e-15
# With a smaller share of the variance in the mean square, cancellation loses too many digits.
_MIN_VARIANCE_SHARE = 0.1

# Aggregates over all elements, by the names of `_AGGREGATES`.
_Totals = dict[str, float]


class TensorFlowBackend:
    """See `vinedresser.capture.keras_.backends.backend.Backend`."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {"tensorflow": tf.__version__}

    def copier(self, session: Session) -> TensorFlowCopier:
        """See `Backend.copier`."""
        return session.copier(TensorFlowCopier)

    def is_tensor(self, value: Any) -> bool:
        """See `Backend.is_tensor`."""
        return isinstance(value, (tf.Tensor, np.ndarray, *_COMPOSITE))

    def dense(self, value: Any) -> Any:
        """See `Backend.dense`."""
        # Shortcut: isinstance is slow for the other classes, which are abstract.
        if type(value) is _EAGER:
            return value
        if isinstance(value, tf.IndexedSlices):
            return tf.convert_to_tensor(value)
        if isinstance(value, tf.SparseTensor):
            return tf.sparse.to_dense(value)
        if isinstance(value, tf.RaggedTensor):
            raise TypeError("a ragged tensor cannot be stored")
        return value

    def read(self, variable: Any) -> Any:
        """See `Backend.read`."""
        if isinstance(variable, keras.Variable):
            variable = variable.value
        return variable.read_value() if isinstance(variable, tf.Variable) else variable

    def snapshot(self, variable: Any) -> Any:
        """See `Backend.snapshot`."""
        return self.read(variable)

    def tracing(self) -> bool:
        """See `Backend.tracing`."""
        return bool(tf.inside_function())

    def differentiating(self) -> bool:
        """See `Backend.differentiating`."""
        from tensorflow.python import pywrap_tfe

        return not pywrap_tfe.TFE_Py_TapeSetIsEmpty()

    def operations(self, shield: Shield) -> TensorFlowOperations:
        """See `Backend.operations`."""
        return TensorFlowOperations(shield)


class _Known:
    """A tensor with the elements and statistics recorded so far.

    Args:
        value: the tensor, of any shape; holding it keeps its id in use.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        # Elements by number of rows; None for all.
        self.hosts: dict[int | None, HostTensor] = {}
        # By the reductions and the channel axis.
        self.statistics: dict[tuple[frozenset[str], int | None], Statistics] = {}

    def fits(self, rows: int | None) -> bool:
        """Return whether at least one of `rows` rows can be stored (see `affordable_rows`)."""
        return rows is None or self._affordable(rows) > 0

    def host(self, name: str, rows: int | None) -> HostTensor:
        """Return all elements of the tensor, or those of at most `rows` rows."""
        rows_at = None
        if rows is not None and self.value.ndim:
            rows_at = strided_rows(self.value.shape[0], self._affordable(rows))
        key = None if rows_at is None else rows
        if key not in self.hosts:
            self.hosts[key] = _view(name, self.value, rows_at)
        return self.hosts[key]

    def _affordable(self, rows: int) -> int:
        most = affordable_rows(rows, tuple(self.value.shape), self.value.dtype.size)
        assert most is not None, "called with a number of rows only"
        return most


class TensorFlowCopier(ArrayCopier):
    """The `TensorCopier` of TensorFlow tensors.

    Tensors in host memory are immutable (assigning to a variable while a tensor read from it is in
    use allocates new memory), so a view is kept, which keeps the tensor alive. A tensor with
    several names is kept once.
    """

    channels_last = True

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """See `TensorCopier.keep`.

        Raises:
            TypeError: The dtype cannot be stored.
        """
        if not isinstance(value, tf.Tensor):
            super().keep(recording, name, value, ask)
            return
        known: _Known = recording.kept.get(id(value)) or _Known(value)
        recording.kept[id(value)] = known
        if ask.live and name not in recording.live:
            recording.live[name] = LiveArray(known.host(name, None).data)
        if ask.tensor and name not in recording.tensors and known.fits(ask.rows):
            recording.tensors[name] = known.host(name, ask.rows)
        if ask.reductions and not recording.has_statistics(name):
            axis = channel_axis(name, value.ndim, last=self.channels_last)
            key = (ask.reductions, axis)
            if key not in known.statistics:
                array = known.host(name, None).data
                known.statistics[key] = fast_statistics(array, ask.reductions, axis)
            recording.add_statistics(name, known.statistics[key])

    def finish(self, recording: Recording) -> None:
        """See `TensorCopier.finish`."""
        recording.kept.clear()


def _view(name: str, value: Any, rows_at: NDArray[np.int64] | None) -> HostTensor:
    """Return a tensor's elements; a view if they are in host memory.

    Args:
        value: the tensor, of any shape.
        rows_at: int64 [rows], indices of the rows to copy; None for a view of all.
    """
    if rows_at is not None and "CPU" not in value.device:
        value, rows_at = tf.gather(value, rows_at), None
    array = np.asarray(value)
    if rows_at is not None:
        array = array[rows_at]
    try:
        return HostTensor(dtype_name(array.dtype), array.shape, array)
    except KeyError:
        raise TypeError(f"{name}: a tensor of {value.dtype.name} cannot be stored") from None


def fast_statistics(array: NDArray[Any], words: frozenset[str], axis: int | None) -> Statistics:
    """Compute the statistics of an array like `compute_statistics`, but faster for float32.

    Args:
        array: values of any shape and dtype.
        words: names of the reductions; see `vinedresser.store.reductions`.
        axis: the channel axis; see `channel_axis`.
    """
    if array.dtype != np.float32 or not array.size:
        return compute_statistics(array, words, axis)
    wanted = plan_reductions(words)
    found = compute_statistics(array, wanted.late, axis) if wanted.late else Statistics()
    if wanted.elementwise:
        values = _elementwise(array.reshape(-1), wanted.elementwise_names)
        for word in wanted.elementwise:
            found.scalars[word.text] = values[word.canonical]
    return found


def _elementwise(flat: NDArray[np.float32], names: tuple[str, ...]) -> dict[str, float]:
    """Return elementwise statistics of an array by name.

    Args:
        flat: float32 [n], n > 0.
        names: canonical names of elementwise reductions.
    """
    with np.errstate(all="ignore"):
        found = _pass_over(flat, _needs(names))
    values: dict[str, float] = {}
    if not _unreliable(found, flat):
        quick = (name for name in names if name in _FORMULAS)
        values = {name: _FORMULAS[name][1](found, flat.size) for name in quick}
    again = tuple(name for name in names if math.isnan(values.get(name, math.nan)))
    if again:
        rows = elementwise_statistics(flat.reshape(1, -1), again)
        values.update((name, float(value[0])) for name, value in rows.items())
    return values


@cache
def _needs(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the aggregates that some statistics need; slow statistics need none."""
    quick = (name for name in names if name in _FORMULAS)
    return tuple(dict.fromkeys(need for name in quick for need in _FORMULAS[name][0]))


def _pass_over(flat: NDArray[np.float32], needs: tuple[str, ...]) -> _Totals:
    """Return aggregates over all elements, reading each element from memory once."""
    found: _Totals = {}
    for rows in _pieces(flat):
        for need in needs:
            taken = float(_AGGREGATES[need](rows))
            known = found.get(need)
            found[need] = taken if known is None else float(_JOIN.get(need, np.add)(known, taken))
    return found


def _pieces(flat: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yield all elements in pieces [k, _ROW]; the remaining elements form a row of their own."""
    whole = flat.size - flat.size % _ROW
    for first in range(0, whole, _PIECE):
        yield flat[first : min(first + _PIECE, whole)].reshape(-1, _ROW)
    if whole < flat.size:
        yield flat[whole:].reshape(1, -1)


def _unreliable(found: _Totals, flat: NDArray[np.float32]) -> bool:
    """Return whether a sum has reached the limits of float32 or met a non-finite element."""
    if not all(map(math.isfinite, found.values())):
        return True
    squares = found.get("squares", math.inf)
    return squares < _MIN_RMS**2 * flat.size and bool(flat.any())


def _sum(rows: NDArray[np.float32]) -> Any:
    """Return the sum of all elements; np.sum is slower for short rows."""
    return np.add.reduce(np.einsum("ij->i", rows), dtype=np.float64)


# Aggregate of a piece [k, _ROW], by name.
_AGGREGATES: dict[str, Callable[[NDArray[np.float32]], Any]] = {
    "low": lambda rows: np.minimum.reduce(rows, None),
    "high": lambda rows: np.maximum.reduce(rows, None),
    "sum": _sum,
    "squares": lambda rows: np.add.reduce(np.vecdot(rows, rows), dtype=np.float64),
    "abs_sum": lambda rows: _sum(np.abs(rows)),
    "zeros": lambda rows: np.count_nonzero(rows == 0),
}
# How the aggregates of two pieces are combined, if not by addition.
_JOIN: dict[str, np.ufunc] = {"low": np.minimum, "high": np.maximum}


def _variance(found: _Totals, count: int) -> float:
    """Return the variance; NaN if float32 is not precise enough."""
    mean_square = found["squares"] / count
    variance = mean_square - (found["sum"] / count) ** 2
    return variance if variance > _MIN_VARIANCE_SHARE * mean_square else math.nan


# The aggregates that a statistic needs, and the formula for it with the number of elements.
_FORMULAS: dict[str, tuple[tuple[str, ...], Callable[[_Totals, int], float]]] = {
    "min": (("low",), lambda found, _: found["low"]),
    "max": (("high",), lambda found, _: found["high"]),
    "abs_max": (("low", "high"), lambda found, _: max(-found["low"], found["high"])),
    "sum": (("sum",), lambda found, _: found["sum"]),
    "mean": (("sum",), lambda found, count: found["sum"] / count),
    "l1": (("abs_sum",), lambda found, _: found["abs_sum"]),
    "abs_mean": (("abs_sum",), lambda found, count: found["abs_sum"] / count),
    "l2": (("squares",), lambda found, _: math.sqrt(found["squares"])),
    "variance": (("sum", "squares"), _variance),
    "std": (("sum", "squares"), lambda found, count: math.sqrt(_variance(found, count))),
    "zero_share": (("zeros",), lambda found, count: found["zeros"] / count),
    # A non-finite element would have been detected by the sum.
    "nonfinite": (("sum",), lambda *_: 0.0),
}
