"""The operations of TensorFlow from which tensors were computed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context
from tensorflow.python.framework import op_callbacks

from vinedresser.capture.keras_.backends.operations import Operation
from vinedresser.capture.shield import Shield

__all__ = ["TensorFlowOperations", "stop_recording"]

# A loss is few operations; their tensors are kept until its gradients are taken.
_MOST_OPERATIONS = 128
# Relative tolerance for sums of float32 probabilities, also of clipped ones.
_SUMS = 1e-3
_EAGER = tf.__internal__.EagerTensor


class _Local(threading.local):
    recording: TensorFlowOperations | None = None


_LOCAL = _Local()


def stop_recording() -> None:
    """End the recording of this thread, if there is one."""
    if _LOCAL.recording is not None:
        _LOCAL.recording.end()


class TensorFlowOperations:
    """See `Operations`.

    Operations of a graph are known from their tensors. Those of code that runs line by line are
    recorded by TensorFlow's callbacks of operations, which change nothing that is computed.

    Args:
        shield: guards the callback.
    """

    def __init__(self, shield: Shield) -> None:
        self._made: dict[int, Operation] = {}
        # The results, whose ids must stay in use, and tensors that depend on trained variables.
        self._results: list[Any] = []
        self._trained: set[int] = set()
        self._on = False
        guarded = shield.guard("recording operations", self._take)

        def callback(*given: Any, **of_graph: Any) -> None:
            guarded(given, of_graph)

        self._callback = callback

    def begin(self) -> None:
        """See `Operations.begin`."""
        self.forget()
        # Those of another tool are left alone.
        if tf.executing_eagerly() and not context.context().op_callbacks:
            self._on, _LOCAL.recording = True, self
            op_callbacks.add_op_callback(self._callback)

    def end(self) -> None:
        """See `Operations.end`."""
        self._on = False
        # In another thread, the callback does nothing from now on.
        if _LOCAL.recording is self:
            _LOCAL.recording = None
            op_callbacks.remove_op_callback(self._callback)

    def forget(self) -> None:
        """See `Operations.forget`."""
        self.end()
        self._made, self._results, self._trained = {}, [], set()

    def known(self, tensor: Any) -> bool:
        """See `Operations.known`."""
        return id(tensor) in self._made if isinstance(tensor, _EAGER) else hasattr(tensor, "op")

    def of(self, tensor: Any) -> Operation | None:
        """See `Operations.of`."""
        if isinstance(tensor, _EAGER):
            return self._made.get(id(tensor))
        operation = getattr(tensor, "op", None)
        return None if operation is None else Operation(operation.type, tuple(operation.inputs))

    def is_trained(self, tensor: Any) -> bool:
        """See `Operations.is_trained`."""
        return not isinstance(tensor, _EAGER) or id(tensor) in self._trained

    def constant(self, tensor: Any) -> float | None:
        """See `Operations.constant`."""
        if tensor.shape.rank != 0 or not (tensor.dtype.is_floating or tensor.dtype.is_integer):
            return None
        value = None if _is_elsewhere(tensor) else tf.get_static_value(tensor)
        return None if value is None else float(value)

    def are_probabilities(self, tensor: Any) -> bool:
        """See `Operations.are_probabilities`."""
        if not tensor.dtype.is_floating or not tensor.shape.rank or _is_elsewhere(tensor):
            return False
        if isinstance(tensor, _EAGER):
            values = tensor.numpy().astype(np.float64)
            sums = values.sum(-1)
            return bool(
                values.shape[-1] > 1 and (values >= 0).all() and np.allclose(sums, 1, _SUMS)
            )
        operation = self.of(tensor)
        if operation is None or operation.kind != "OneHot":
            return operation is not None and operation.kind == "Softmax"
        return [self.constant(one) for one in operation.inputs[2:]] == [1.0, 0.0]

    def varies(self, tensor: Any) -> bool:
        """See `Operations.varies`."""
        value = tf.get_static_value(tensor)
        return value is not None and value.size > 0 and bool((value != value.flat[0]).any())

    def _take(self, given: tuple[Any, ...], of_graph: dict[str, Any]) -> None:
        """Record an operation.

        Args:
            given: its type, its arguments, attributes and results, and perhaps more.
            of_graph: the graph that it is part of, if there is one.
        """
        # A function that is traced in between is another matter.
        traced = of_graph.get("graph") is not None
        if traced or not self._on or len(self._made) >= _MOST_OPERATIONS:
            return
        kind, inputs, _, results = given[:4]
        operation = Operation(tf.compat.as_str(kind), tuple(inputs))
        for one in operation.inputs:
            before = id(one) not in self._made and isinstance(one, _EAGER)
            # Only now, a tape tells.
            if before and pywrap_tfe.TFE_Py_TapeSetShouldRecordBackprop([one]):
                self._trained.add(id(one))
        for result in results:
            self._made[id(result)] = operation
            self._results.append(result)


def _is_elsewhere(tensor: Any) -> bool:
    """Return whether a device would have to be waited for to read a tensor."""
    return isinstance(tensor, _EAGER) and "CPU" not in tensor.backing_device
