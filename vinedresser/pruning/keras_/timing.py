"""The time of a forward pass of a Keras model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
from keras import tree

from vinedresser.pruning.keras_.checks import checked_inputs, checked_model
from vinedresser.pruning.keras_.graph import graph_of
from vinedresser.pruning.keras_.user_code import user_code

__all__ = ["forward_timer"]


def forward_timer(model: Any, example: Any) -> Callable[[], float]:
    """Return a function that runs a model once and returns the seconds that it took.

    Raises:
        PruningError: the model is not supported, or the example does not fit its inputs; or, by
            the function, the model does not run.
    """
    inputs = checked_inputs(checked_model(model), example)
    packed = tree.pack_sequence_as(graph_of(model).input, inputs)

    def forward(given: Any) -> Any:
        # Nothing that a layer assigns reaches the model.
        with keras.StatelessScope():
            return model(given, training=False)

    run = _compiled(forward)

    def timed() -> float:
        with user_code("the model does not run on the example"):
            start = time.perf_counter()
            for output in tree.flatten(run(packed)):
                # Waits for the device.
                keras.ops.convert_to_numpy(output)
            return time.perf_counter() - start

    return timed


def _compiled(forward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that runs as the backend runs models in predictions."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        compiled: Callable[[Any], Any] = tf.function(forward)
        return compiled
    if keras.backend.backend() == "torch":
        import torch

        return torch.no_grad()(forward)
    return forward
