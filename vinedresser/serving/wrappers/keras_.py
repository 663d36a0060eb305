"""Recording the calls of a Keras model, with the outputs of a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from vinedresser.columns.rows import host_array
from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.serving.wrappers.calls import Sink, call_inputs


class KerasWatch:
    """Stands for a Keras model and records its calls; the model itself is not changed.

    Args:
        sink: receives the calls.
        layer: name of the layer whose output is the embedding; None: no embedding. Axes between
            the requests and the last one are averaged. The model must be functional or sequential:
            its graph gets this output as a second one, so nothing is computed twice.

    Raises:
        ConfigError: there is no such layer, or the model has no graph of layers.
    """

    def __init__(self, model: Any, sink: Sink, layer: str | None) -> None:
        self._model = model
        self._sink = sink
        self._closed = False
        self._inner = model if layer is None else _with_layer(model, layer)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model."""
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model and record it."""
        return self._recorded(self._inner, args, kwargs)

    def predict(self, x: Any, **kwargs: Any) -> Any:
        """Call `predict` of the model and record it."""
        return self._recorded(lambda inputs: self._inner.predict(inputs, **kwargs), (x,), {})

    def predict_on_batch(self, x: Any) -> Any:
        """Call `predict_on_batch` of the model and record it."""
        return self._recorded(self._inner.predict_on_batch, (x,), {})

    def close(self) -> None:
        """Record nothing more."""
        self._inner = self._model
        self._closed = True

    def _recorded(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        inputs = {name: value for name, value in kwargs.items() if name not in ("training", "mask")}
        item = None if self._closed else self._sink.begin(call_inputs(args, inputs))
        found = call(*args, **kwargs)
        if self._inner is self._model:
            outputs, embedding = found, None
        else:
            outputs, embedding = found["outputs"], found["layer"]
        if item is not None:
            self._sink.finish(item, outputs, None if embedding is None else _pooled(embedding))
        return outputs


def _with_layer(model: Any, layer: str) -> Any:
    names = [one.name for one in model.layers]
    if layer not in names:
        raise ConfigError(f"layer: the model has no layer {layer!r}{did_you_mean(layer, names)}")
    try:
        outputs = {"outputs": _plain(model.outputs), "layer": model.get_layer(layer).output}
        return keras.Model(_plain(model.inputs), outputs)
    except (AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"layer: the model {model.name!r} has no graph of layers, so the output of {layer!r} "
            f"cannot be recorded: {error}"
        ) from error


def _plain(tensors: Any) -> Any:
    return tensors[0] if isinstance(tensors, list) and len(tensors) == 1 else tensors


def _pooled(embedding: Any) -> Any:
    array = host_array(embedding)
    return array if array.ndim == 2 else np.mean(array, axis=tuple(range(1, array.ndim - 1)))
