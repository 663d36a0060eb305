"""Interception of the loss functions of TensorFlow and Keras that loops call themselves."""

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
from vinedresser.capture.keras_.observation.comparisons import Comparison, LossFunction
from vinedresser.capture.keras_.observation.interception import notify_comparison
from vinedresser.capture.keras_.observation.observers import Original, PatchPoint

__all__ = ["LOSS_FUNCTIONS"]

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


LOSS_FUNCTIONS: tuple[PatchPoint, ...] = (
    *_points(tf.nn, _OF_TENSORFLOW, "labels", "logits"),
    *_points(keras.losses, _OF_KERAS, "y_true", "y_pred"),
    *_points(tf.keras.losses, _OF_KERAS, "y_true", "y_pred"),
)
"""Functions that compute the loss of each row or element."""
