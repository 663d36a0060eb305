"""TensorFlow under Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from vinedresser.capture.keras_.backends.tensorflow_copier import TensorFlowCopier
from vinedresser.capture.keras_.calls.interception import Place
from vinedresser.capture.keras_.steps.eager_runner import EagerRunner
from vinedresser.capture.keras_.steps.graph_runner import GraphRunner, TensorFlowRunner
from vinedresser.capture.keras_.steps.runner import Runner
from vinedresser.capture.keras_.steps.user_functions import UserFunctions
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.session import Session

__all__ = ["TensorFlowBackend"]

# Of the process, as the calls are.
_FUNCTIONS = UserFunctions()
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
        # To ask for the others takes longer: their classes are abstract.
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

    def held(self, variable: Any) -> Any:
        """See `Backend.held`."""
        return self.read(variable)

    def tracing(self) -> bool:
        """See `Backend.tracing`."""
        return bool(tf.inside_function())

    def differentiating(self) -> bool:
        """See `Backend.differentiating`."""
        from tensorflow.python import pywrap_tfe

        return not pywrap_tfe.TFE_Py_TapeSetIsEmpty()

    @property
    def places(self) -> tuple[Place, ...]:
        """See `Backend.places`."""
        return (_FUNCTIONS.place,)

    def watch(self, watched: Watched) -> None:
        """See `Backend.watch`."""
        _FUNCTIONS.watch(watched)

    def leave(self, watched: Watched) -> None:
        """See `Backend.leave`."""
        _FUNCTIONS.leave(watched)

    def traced_call(self) -> None:
        """See `Backend.traced_call`."""
        _FUNCTIONS.called()

    def traced_update(self, watched: Watched, optimizer: Any) -> None:
        """See `Backend.traced_update`."""
        _FUNCTIONS.updated(watched, optimizer)

    def runner(self, watched: Watched) -> Runner:
        """See `Backend.runner`."""
        return TensorFlowRunner(watched.model, EagerRunner(watched), GraphRunner(watched))
