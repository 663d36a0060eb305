"""Pruning of Keras models behind the interface that all frameworks share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import tree

from vinedresser.frameworks.keras_.names import Names
from vinedresser.pruning.backend import Losses
from vinedresser.pruning.criteria.criterion import Measured, Measurement
from vinedresser.pruning.group import Group
from vinedresser.pruning.keras_.checks import checked_inputs, checked_model
from vinedresser.pruning.keras_.graph import graph_of, values_of
from vinedresser.pruning.keras_.measuring import losses_of, measure
from vinedresser.pruning.keras_.prunable import KerasPrunable
from vinedresser.pruning.keras_.user_code import user_code
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.prunable import Prunable
from vinedresser.pruning.weights import read_tensors, write_tensors

__all__ = ["KerasBackend"]

# For axes whose length the model leaves open, such as the height of images.
_OPEN = 64


class KerasBackend:
    """The `vinedresser.pruning.backend.Backend` of Keras."""

    def prunable(self, model: Any, example: Any) -> Prunable[Any]:
        """See `Backend.prunable`."""
        return KerasPrunable(model, example)

    def removed(self, model: Any, plan: Plan) -> Any:
        """See `Backend.removed`."""
        # Any input shows how channels reach from layer to layer.
        inputs = [
            np.zeros([1, *(size or _OPEN for size in one.shape[1:])], one.dtype)
            for one in graph_of(model).inputs
        ]
        return KerasPrunable(model, inputs if len(inputs) > 1 else inputs[0]).removed(plan)

    def measure(
        self,
        model: Any,
        losses: Losses,
        groups: Iterable[Group],
        measurements: Iterable[Measurement],
    ) -> Measured:
        """See `Backend.measure`."""
        return measure(model, losses, [*groups], [*measurements])

    def losses_of(self, model: Any, losses: Losses) -> list[float]:
        """See `Backend.losses_of`."""
        return losses_of(model, losses)

    def forward_timer(self, model: Any, example: Any) -> Callable[[], float]:
        """See `Backend.forward_timer`."""
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

    def write_weights(self, model: Any, path: Path) -> None:
        """See `Backend.write_weights`."""
        found = Names(model).variables()
        write_tensors({one.path: values_of(one.value) for one in found}, path)

    def read_weights(self, model: Any, path: Path) -> None:
        """See `Backend.read_weights`."""
        found = {variable.path: variable.value for variable in Names(model).variables()}
        shapes = {name: tuple(value.shape) for name, value in found.items()}
        for name, array in read_tensors(path, shapes).items():
            found[name].assign(array)


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
