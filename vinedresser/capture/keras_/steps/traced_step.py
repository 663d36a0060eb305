"""A second function of a model that does one step and returns what is to be captured of it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.calls.interception import collecting
from vinedresser.capture.keras_.steps.asking import Asks, MakeCollector
from vinedresser.capture.keras_.steps.graph_table import GraphTable
from vinedresser.capture.keras_.steps.traced import Traced

__all__ = ["TracedStep"]


class TracedStep(Traced):
    """Does what Keras's own function does with one batch, and returns tensors besides.

    It is traced when it is first called, and again only where Keras would trace its own again: the
    step runs once more in Python while the collector looks on. What it computes is what the model's
    function computes; it only has more outputs.

    Args:
        model: whose step.
        method: of the model: "train_step", "test_step" or "predict_step".
        asks: says of a full name whether the tensor is to be returned.
        make_collector: sees the step while it is traced.
    """

    def __init__(self, model: Any, method: str, asks: Asks, make_collector: MakeCollector) -> None:
        super().__init__(asks)
        self._make_collector = make_collector
        self._model = model
        self._method = method
        # In this shape Keras makes its own: a function of a batch inside of one of an iterator.
        step = tf.autograph.experimental.do_not_convert(self._step)
        self._compiled = self.compiled(step, reduce_retracing=True, jit_compile=model.jit_compile)
        # Keras's own: what is missing in a batch comes as None.
        self._on_data = model._autoconvert_optionals(self._compiled)
        self._on_iterator = self.compiled(
            lambda iterator: self._on_data(iterator.get_next()), reduce_retracing=True
        )
        self._on_optional = self.compiled(
            lambda batch: self._on_data(batch.get_value()), reduce_retracing=True
        )

    def run(self, iterator: Any) -> tuple[Any, dict[str, Any]]:
        """Do a step on the next batch of an iterator of tf.data, or on an Optional of one.

        Returns:
            What the model's step returned, and the tensors by name.

        Raises:
            ConfigError: it would change the training.
        """
        self.prepare_for(iterator, on_data=False)
        return self.unfolded(self._taking(iterator)(iterator))

    def run_on(self, data: Any) -> tuple[Any, dict[str, Any]]:
        """Do a step on a batch; see `run`."""
        self.prepare_for(data, on_data=True)
        return self.unfolded(self._on_data(data))

    def prepare_for(self, given: Any, *, on_data: bool) -> None:
        """Trace it, where that is still to be done, for what it is to be called with.

        Args:
            given: to `run`, or to `run_on`.
            on_data: to `run_on`.

        Raises:
            ConfigError: it would change the training.
        """
        self.prepare(self._compiled if on_data else self._taking(given), given)

    def _taking(self, iterator: Any) -> Any:
        """Return the function that takes an iterator, or an Optional."""
        optional = isinstance(iterator, tf.experimental.Optional)
        return self._on_optional if optional else self._on_iterator

    def _step(self, data: Any) -> tuple[Any, dict[str, Any]]:
        def body(table: GraphTable) -> Any:
            collector = self._make_collector(self.note, table.take)
            with collecting(collector):
                step = getattr(self._model, self._method)
                outputs = self._model.distribute_strategy.run(step, args=(data,))
                collector.see_data(data)
            return outputs

        return self.trace(body)
