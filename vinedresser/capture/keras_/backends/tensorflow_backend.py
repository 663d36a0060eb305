"""The TensorFlow backend."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from vinedresser.capture.keras_.backends.tensorflow_copier import TensorFlowCopier
from vinedresser.capture.recording.session import Session

__all__ = ["TensorFlowBackend"]

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
