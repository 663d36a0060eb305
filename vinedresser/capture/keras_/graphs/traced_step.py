"""A second step function of a model that also returns the due tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.graphs.graph_table import GraphTable
from vinedresser.capture.keras_.graphs.traced import MakeCollector, Traced
from vinedresser.capture.keras_.observation.due_filter import DueFilter
from vinedresser.capture.keras_.observation.interception import observing

__all__ = ["TracedStep"]


class TracedStep(Traced):
    """Computes the same as Keras's function of one batch and also returns the due tensors.

    It is traced at its first call, and again only if Keras would retrace its own function. The
    graph has additional outputs but the same computations.

    Args:
        model: the model.
        method: the model's method: "train_step", "test_step" or "predict_step".
        is_due: returns whether the tensor of a full name is to be returned.
        make_collector: returns the observer of the trace.
    """

    def __init__(
        self, model: Any, method: str, is_due: DueFilter, make_collector: MakeCollector
    ) -> None:
        super().__init__(is_due)
        self._make_collector = make_collector
        self._model = model
        self._method = method
        # Structured as in Keras: a function of a batch inside a function of an iterator.
        step = tf.autograph.experimental.do_not_convert(self._step)
        self._compiled = self.compiled(step, reduce_retracing=True, jit_compile=model.jit_compile)
        # As in Keras: missing elements of a batch are passed as None.
        self._on_data = model._autoconvert_optionals(self._compiled)
        self._on_iterator = self.compiled(
            lambda iterator: self._on_data(iterator.get_next()), reduce_retracing=True
        )
        self._on_optional = self.compiled(
            lambda batch: self._on_data(batch.get_value()), reduce_retracing=True
        )

    def run(self, iterator: Any) -> tuple[Any, dict[str, Any]]:
        """Run a step on the next batch of a tf.data iterator, or on an Optional of a batch.

        Returns:
            The result of the model's step and the tensors by name.

        Raises:
            ConfigError: Running it would change the training.
        """
        self.prepare_for(iterator, on_data=False)
        return self.unpacked(self._function_for(iterator)(iterator))

    def run_on(self, data: Any) -> tuple[Any, dict[str, Any]]:
        """Run a step on a batch; see `run`."""
        self.prepare_for(data, on_data=True)
        return self.unpacked(self._on_data(data))

    def prepare_for(self, given: Any, *, on_data: bool) -> None:
        """Trace it for an argument unless that was done before.

        Args:
            given: argument of `run` or `run_on`.
            on_data: whether it is the argument of `run_on`.

        Raises:
            ConfigError: Running it would change the training.
        """
        self.prepare(self._compiled if on_data else self._function_for(given), given)

    def _function_for(self, iterator: Any) -> Any:
        """Return the function for an iterator or an Optional."""
        optional = isinstance(iterator, tf.experimental.Optional)
        return self._on_optional if optional else self._on_iterator

    def _step(self, data: Any) -> tuple[Any, dict[str, Any]]:
        def body(table: GraphTable) -> Any:
            collector = self._make_collector(self.request, table.add)
            with observing(collector):
                step = getattr(self._model, self._method)
                outputs = self._model.distribute_strategy.run(step, args=(data,))
                collector.on_data(data)
            return outputs

        return self.trace(body)
