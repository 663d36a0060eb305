"""Interception of the gradients that loops take with a ``GradientTape`` of TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.backends.tensorflow_operations import stop_recording
from vinedresser.capture.keras_.observation.interception import notify_differentiation
from vinedresser.capture.keras_.observation.observers import Original, PatchPoint

__all__ = ["GRADIENT"]


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
GRADIENT: PatchPoint = (tf.GradientTape, "gradient", _gradient)
