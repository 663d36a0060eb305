"""A train step of a model that returns its loss and gradients instead of updating."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.trainer import Trainer

from vinedresser.frameworks.keras_.model_state import variable_paths
from vinedresser.frameworks.keras_.names import Names
from vinedresser.frameworks.methods import replace

__all__ = ["GradientStep", "gradients_by_path", "without_updates"]

# Receives the optimizer, the gradients and their variables.
_TakeUpdate = Callable[[Any, Any, Any], None]


@contextmanager
def without_updates(
    take: _TakeUpdate, take_loss: Callable[[Any], None] = lambda _: None
) -> Iterator[None]:
    """Let optimizers pass on their gradients instead of updating, in this context.

    Args:
        take: receives the arguments of each optimizer's ``apply``, and the optimizer.
        take_loss: receives the loss of each model's own ``compute_loss``.
    """

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        take(self, grads, trainable_variables)

    def noting(compute: Callable[..., Any]) -> Callable[..., Any]:
        def compute_loss(*args: Any, **kwargs: Any) -> Any:
            loss = compute(*args, **kwargs)
            take_loss(loss)
            return loss

        return compute_loss

    with ExitStack() as ends:
        for owner in (BaseOptimizer, keras.optimizers.LossScaleOptimizer):
            ends.callback(replace(owner, "apply", lambda _: apply))
        ends.callback(replace(Trainer, "_compute_loss", noting))
        yield


def gradients_by_path(
    names: Names, optimizer: Any, gradients: Any, variables: Any
) -> dict[str, Any]:
    """Return the gradients of a model's parameters by path; sparse ones are made dense.

    Args:
        optimizer: the optimizer that they were passed to.
        variables: their variables; None for all that the optimizer was built with.
    """
    paths = variable_paths(names)
    owners = optimizer._trainable_variables if variables is None else variables
    found: dict[str, Any] = {}
    for owner, gradient in zip(owners, gradients, strict=False):
        path = paths.get(id(owner)) or paths.get(id(getattr(owner, "_value", None)))
        if path is not None and gradient is not None:
            found[path] = keras.ops.convert_to_tensor(gradient)
    return found


class GradientStep:
    """Runs a model's ``train_step`` as ``fit`` does, but without its update.

    Args:
        model: a compiled model.
        eager: run it eagerly even if the model runs as a graph.
    """

    def __init__(self, model: Any, names: Names, *, eager: bool = False) -> None:
        self._model = model
        self._names = names
        function: Callable[[Any], Any] = self._step
        if keras.backend.backend() == "tensorflow" and not (eager or model.run_eagerly):
            import tensorflow as tf

            # Structured as in Keras: a function of a batch inside a function of an iterator.
            inner: Any = tf.function(self._step, autograph=False, jit_compile=model.jit_compile)
            outer: Any = tf.function(inner, autograph=False)
            # A part of a batch has another shape.
            for one in (inner, outer):
                one._omit_frequent_tracing_warning = True
            function = outer
        self._function = function

    def run(self, data: Any) -> tuple[Any, dict[str, Any]]:
        """Run the step on a batch.

        Args:
            data: a batch as ``train_step`` takes it.

        Returns:
            The loss of ``compute_loss``, None if that is not called, and the gradients by path.
        """
        loss, gradients = self._function(data)
        return loss[0] if loss else None, dict(gradients)

    def _step(self, data: Any) -> tuple[list[Any], dict[str, Any]]:
        losses: list[Any] = []
        gradients: dict[str, Any] = {}

        def take(optimizer: Any, given: Any, variables: Any) -> None:
            gradients.update(gradients_by_path(self._names, optimizer, given, variables))

        with without_updates(take, losses.append):
            self._model.train_step(data)
        return losses[:1], gradients
