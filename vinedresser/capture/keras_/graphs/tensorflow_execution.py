"""Execution on the TensorFlow backend: as graphs, or eagerly with ``run_eagerly``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from functools import cache
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from vinedresser.capture.adapters.training_setup import plain_settings
from vinedresser.capture.keras_.backends.tensorflow_operations import stop_recording
from vinedresser.capture.keras_.graphs.graph_runner import GraphRunner
from vinedresser.capture.keras_.graphs.user_functions import UserFunctions
from vinedresser.capture.keras_.observation.comparisons import Comparison, LossFunction
from vinedresser.capture.keras_.observation.interception import (
    notify_comparison,
    notify_differentiation,
)
from vinedresser.capture.keras_.observation.observers import Original, PatchPoint
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.step_runner import Execution

# The first two arguments of each are the labels and the predictions.
_OF_TENSORFLOW = (
    "sparse_softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "sigmoid_cross_entropy_with_logits",
)
# With their short names in `tf.keras`.
_OF_KERAS = (
    *("binary_crossentropy", "categorical_crossentropy", "sparse_categorical_crossentropy"),
    *("mean_squared_error", "mse", "MSE", "mean_absolute_error", "mae", "MAE", "huber"),
)

_described = cache(LossFunction)


def _function(labels: str, predictions: str) -> Callable[[Original], Original]:
    """Return what makes the replacement of a function with these names of its arguments."""

    def make(original: Original) -> Original:
        name = original.__name__.removesuffix("_v2")
        names = labels, predictions, *list(inspect.signature(original).parameters)[2:]

        def call(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            # Losses and metrics of Keras call the functions of TensorFlow, too.
            if not sys._getframe(1).f_globals.get("__name__", "").startswith("keras."):
                given = dict(zip(names, args, strict=False)) | kwargs
                compared = given.pop(labels, None), given.pop(predictions, None)
                settings = plain_settings(given)
                settings.pop("name", None)
                loss = _described(name, tuple(settings.items()))
                notify_comparison(Comparison(loss, value, *compared))
            return value

        return call

    return make


def _points(
    owner: ModuleType, names: Iterable[str], labels: str, predictions: str
) -> Iterable[PatchPoint]:
    """Yield where the functions of a module are replaced."""
    make = _function(labels, predictions)
    return ((owner, name, make) for name in names if name in vars(owner))


_LOSS_FUNCTIONS: tuple[PatchPoint, ...] = (
    *_points(tf.nn, _OF_TENSORFLOW, "labels", "logits"),
    *_points(keras.losses, _OF_KERAS, "y_true", "y_pred"),
    *_points(tf.keras.losses, _OF_KERAS, "y_true", "y_pred"),
)
"""Functions that compute the loss of each row or element."""


def _gradient(original: Original) -> Original:
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        # The operations of the backward pass are not those of the loss.
        stop_recording()
        gradients = original(self, target, sources, *args, **kwargs)
        # With weights for its elements, the target is not what the gradients minimize.
        if (args[0] if args else kwargs.get("output_gradients")) is None:
            notify_differentiation(target, sources)
        return gradients

    return gradient


# The method through which loops take the gradients of their loss.
_GRADIENT: PatchPoint = (tf.GradientTape, "gradient", _gradient)


# One per process, like the patched methods.
_FUNCTIONS = UserFunctions()


class TensorFlowExecution(Execution):
    """See `Execution`."""

    patch_points = (_FUNCTIONS.patch_point, _GRADIENT, *_LOSS_FUNCTIONS)

    def __init__(self, watched: WatchedModel) -> None:
        super().__init__(GraphRunner(watched))
        self._watched = watched

    def watch(self) -> None:
        """See `Execution.watch`."""
        _FUNCTIONS.watch(self._watched)

    def unwatch(self) -> None:
        """See `Execution.unwatch`."""
        _FUNCTIONS.unwatch(self._watched)

    def on_traced_call(self) -> None:
        """See `Execution.on_traced_call`."""
        _FUNCTIONS.on_traced_call()

    def on_traced_update(self, optimizer: Any) -> None:
        """See `Execution.on_traced_update`."""
        _FUNCTIONS.on_traced_update(self._watched, optimizer)
