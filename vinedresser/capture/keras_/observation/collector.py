"""Naming of the tensors observed in one step or forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from vinedresser.capture.keras_.backends.backend import Backend
from vinedresser.capture.keras_.observation.comparisons import Comparison
from vinedresser.capture.keras_.observation.due_filter import DueFilter, Emit
from vinedresser.capture.keras_.observation.loop_losses import (
    Differentiation,
    LoopLosses,
    LoopUpdate,
)
from vinedresser.capture.keras_.observation.observers import Original
from vinedresser.capture.keras_.observation.optimizer_update import OptimizerUpdate
from vinedresser.capture.shield import Shield
from vinedresser.frameworks.keras_.layers import attention_scores
from vinedresser.frameworks.keras_.names import Names
from vinedresser.frameworks.nesting import leaves

__all__ = ["Collector", "is_loss"]

# Number of a label that does not count, as torch has it.
_IGNORED = -100


class Collector:
    """A `StepObserver` that names the tensors it observes and emits those that are due.

    Args:
        names: names of a watched model.
        is_due: returns whether the tensor of a full name is due.
        emit: receives the due tensors, of any shape and dtype.
        on_layers: called with the ids of the model's layers.
        shield: guards the training against errors of the capture.
        losses_of: see `WatchedModel.losses_of`; None if Keras itself computes the loss.
        loop_losses: relates the forward passes of the step to its losses.
    """

    def __init__(
        self,
        names: Names,
        backend: Backend,
        is_due: DueFilter,
        emit: Emit,
        *,
        on_layers: Callable[[Iterable[int]], None],
        shield: Shield,
        losses_of: Callable[[LoopUpdate, Any, Any], dict[str, Any]] | None,
        loop_losses: LoopLosses,
    ) -> None:
        self._names = names
        self._backend = backend
        self._is_due = is_due
        self._emit = emit
        self._on_layers = on_layers
        # Number of calls of each layer, by path.
        self._calls: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._foreign: set[int] = set()
        self._loss_inputs_seen = False
        # The update in progress.
        self._update: OptimizerUpdate | None = None
        # The latest output of the root.
        self._returned: Any = None
        self._losses_of = losses_of
        self._loop_losses = loop_losses
        guard = shield.guard
        self._emit_inputs = guard("the inputs of", self._inputs, names=0)
        self._emit_outputs = guard("the outputs of", self._outputs, names=0)
        self._find_path = guard("the name of a layer", self._path)
        self._emit_scores = guard("the attention of", self._scores, names=0)
        self.on_mean_update = guard("a loss", self._on_mean_update)
        self.on_loss_inputs = guard("labels and predictions", self._on_loss_inputs)
        self.before_update = guard("the update of an optimizer", self._before_update)
        self.after_update = guard("the change by an optimizer", self._after_update)
        self._on_output = guard("the output of the model", self._note_output)
        self.on_comparison = guard("what a loss compares", self._on_comparison)
        self.on_differentiation = guard("the loss of a tape", self._on_differentiation)
        self.on_data = guard("labels and predictions", self._on_data)

    def call_layer(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """See `StepObserver.call_layer`."""
        # In a symbolic scope, Keras infers shapes only.
        path = None if in_symbolic_scope() else self._find_path(layer)
        if path is None:
            return original(layer, *args, **kwargs)
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        name = f"{path}#{call}" if call else path
        self._emit_inputs(name, args, kwargs)
        output = original(layer, *args, **kwargs)
        self._emit_outputs(name, output)
        if layer is self._names.model:
            self._returned = output
            self._on_output(output)
        return output

    def compute_attention(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """See `StepObserver.compute_attention`."""
        result = original(layer, *args, **kwargs)
        path = None if in_symbolic_scope() else self._find_path(layer)
        if path is not None:
            # call_layer has counted this call already.
            call = self._calls.get(path, 1) - 1
            name = f"attention/{path}#{call}" if call else f"attention/{path}"
            self._emit_scores(name, layer, result, args, kwargs)
        return result

    def on_loss(self, name: str, value: Any) -> None:
        """See `StepObserver.on_loss`."""
        self._emit_due(f"losses/{name}", value)

    def _path(self, layer: Any) -> str | None:
        """Return the path of a layer; None if it is not part of the model."""
        identity = id(layer)
        if identity not in self._paths and identity not in self._foreign:
            # The layer may be new.
            self._paths = {id(one): path for path, one in self._names.layers()}
            self._on_layers(self._paths)
            if identity not in self._paths:
                self._foreign.add(identity)
        return self._paths.get(identity)

    def _inputs(self, name: str, args: Any, kwargs: Any) -> None:
        self._emit_due(f"inputs/{name}", _arguments(args, kwargs))

    def _outputs(self, name: str, output: Any) -> None:
        self._emit_due(f"outputs/{name}", output)

    def _scores(self, name: str, layer: Any, result: Any, args: Any, kwargs: Any) -> None:
        if self._is_due(name):
            self._emit(name, attention_scores(layer, result, args, kwargs))

    def _on_mean_update(self, metric: Any, value: Any) -> None:
        if is_loss(metric.name) and any(metric is one for one in self._names.model.metrics):
            self.on_loss(f"{self._names.prefix}{metric.name}", value)

    def _on_loss_inputs(self, owner: Any, labels: Any, predictions: Any) -> None:
        model = self._names.model
        if owner is model or owner is getattr(model, "_compile_loss", None):
            self._loss_inputs_seen = True
            self._emit_batch(_counted_labels(labels, predictions), predictions)

    def _on_data(self, data: Any) -> None:
        """Emit labels and predictions from the data and the root's output if no loss was computed.

        Of a root that was not called, since its step calls its parts, the inputs are the data.

        Args:
            data: the batch: (inputs, labels, sample weights), the latter optional, or inputs alone.
        """
        inputs, labels = [*data, None][:2] if isinstance(data, (tuple, list)) else (data, None)
        if not self._loss_inputs_seen:
            self._emit_batch(labels, self._returned)
        if self._names.root not in self._calls:
            self._emit_inputs(self._names.root, (inputs,), {})

    def _emit_batch(self, labels: Any, predictions: Any) -> None:
        for kind, value in (("labels", labels), ("predictions", predictions)):
            for key, one in self._by_output(value).items():
                self._emit_due(f"{kind}/{self._names.prefix}{key}", one)

    def _by_output(self, value: Any) -> dict[str, Any]:
        """Return labels or predictions by the name of their output.

        Args:
            value: one tensor (named "batch"), a mapping by output name, or a sequence in the order
                of the outputs.
        """
        if isinstance(value, dict):
            return {str(key): one for key, one in value.items()}
        if not isinstance(value, (list, tuple)):
            return {"batch": value}
        if len(value) == 1:
            return {"batch": value[0]}
        keys = list(getattr(self._names.model, "output_names", None) or [])
        if len(keys) != len(value):
            keys = [f"batch[{place}]" for place in range(len(value))]
        return dict(zip(keys, value, strict=True))

    def _note_output(self, output: Any) -> None:
        # The operations of a graph need not be recorded.
        self._loop_losses.called(output, trained=self._backend.differentiating(), looks=False)

    def _on_comparison(self, comparison: Comparison) -> None:
        self._loop_losses.compared(comparison)

    def _on_differentiation(self, differentiation: Differentiation) -> None:
        self._loop_losses.differentiated(differentiation)

    def _before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        if self._losses_of is not None:
            found = self._losses_of(self._loop_losses.updated(), optimizer, variables)
            for name, value in found.items():
                self._emit_due(name, value)
        update = OptimizerUpdate(self._names, self._backend, optimizer, gradients, variables)
        update.emit_before(self._is_due, self._emit)
        self._update = update

    def _after_update(self) -> None:
        update, self._update = self._update, None
        if update is not None:
            update.emit_changes(self._emit)

    def _emit_due(self, name: str, value: Any) -> None:
        for full, tensor in leaves(value, name, self._backend.is_tensor):
            if self._is_due(full):
                self._emit(full, self._backend.dense(tensor))


def is_loss(name: str) -> bool:
    """Return whether a metric or log entry of this name is a loss, as named by Keras."""
    return name == "loss" or name.endswith("_loss")


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the arguments of a call: a single one itself, or several by position or keyword."""
    given = dict(enumerate(args)) | dict(kwargs)
    relevant = {key: one for key, one in given.items() if one is not None and key != "training"}
    return args[0] if args and set(relevant) <= {0} else relevant


def _counted_labels(labels: Any, predictions: Any) -> Any:
    """Return class numbers, with `_IGNORED` where the predictions are masked.

    A loss leaves these out, such as the padding of sentences (`Embedding(mask_zero=True)`).

    Args:
        labels: integer tensor [rows, ...], or any other value.
        predictions: tensor [rows, ..., classes], perhaps with a mask [rows, ...].

    Returns:
        int64 [rows, ...]; the labels as they are if there is no mask, or if they are not class
        numbers.
    """
    mask = get_keras_mask(predictions) if keras.ops.is_tensor(predictions) else None
    if mask is None or not keras.ops.is_tensor(labels):
        return labels
    fits = len(labels.shape) == len(mask.shape) == len(predictions.shape) - 1
    if not fits or not keras.backend.is_int_dtype(labels.dtype):
        return labels
    numbers = keras.ops.cast(labels, "int64")
    return keras.ops.where(keras.ops.cast(mask, "bool"), numbers, _IGNORED)
