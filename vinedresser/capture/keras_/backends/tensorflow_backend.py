"""The TensorFlow backend, and the copying of its tensors into recordings."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.keras_.backends.fast_statistics import fast_statistics
from vinedresser.capture.keras_.backends.tensorflow_operations import TensorFlowOperations
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import ArrayCopier, LiveArray
from vinedresser.capture.shield import Shield
from vinedresser.store.dtypes import dtype_name
from vinedresser.store.reductions import Statistics, channel_axis
from vinedresser.store.reductions.sampling import affordable_rows, strided_rows
from vinedresser.store.step_record import HostTensor

__all__ = ["TensorFlowBackend", "TensorFlowCopier"]

_COMPOSITE = (tf.IndexedSlices, tf.SparseTensor, tf.RaggedTensor)
_EAGER = tf.__internal__.EagerTensor


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
