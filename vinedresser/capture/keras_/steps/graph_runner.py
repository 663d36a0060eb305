"""Steps that TensorFlow runs as graphs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.steps.asking import Asks
from vinedresser.capture.keras_.steps.runner import Plain, Runner, Shown
from vinedresser.capture.keras_.steps.traced_step import TracedStep
from vinedresser.capture.keras_.steps.variants import Variants
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.recording import Recording

__all__ = ["GraphRunner", "TensorFlowRunner"]

_ITERATORS = (tf.data.Iterator, tf.distribute.DistributedIterator)


class TensorFlowRunner:
    """A `Runner` of a model that runs as a graph, or, compiled with ``run_eagerly``, does not.

    Args:
        model: the model.
        eager: does its steps in the one case.
        graph: in the other.
    """

    def __init__(self, model: Any, eager: Runner, graph: Runner) -> None:
        self._model = model
        self._eager = eager
        self._graph = graph

    def run(self, method: str, plain: Plain, iterator: Any, recording: Recording | None) -> Shown:
        """See `Runner.run`."""
        runner = self._eager if self._model.run_eagerly else self._graph
        return runner.run(method, plain, iterator, recording)

    def batches(self, iterator: Any, most: int) -> Iterator[Any]:
        """See `Runner.batches`."""
        runner = self._eager if self._model.run_eagerly else self._graph
        return runner.batches(iterator, most)

    def reset(self, method: str) -> None:
        """See `Runner.reset`."""
        self._graph.reset(method)


class GraphRunner:
    """A `Runner` that calls a second function of the model, traced for what is due.

    Args:
        watched: the model.
    """

    def __init__(self, watched: Watched) -> None:
        self._model = watched.model
        self._collector = watched.collector
        self._take_in = watched.take_in
        self._shield = watched.session.shield
        self._variants: dict[str, Variants[TracedStep]] = {}
        # Methods that cannot be traced.
        self._failed: set[str] = set()
        self._attempt = self._shield.guard(
            "tracing a step",
            self._attempted,
            then="training goes on; its losses are means of the epoch so far, and of the tensors "
            "of its steps none is captured",
        )

    def run(self, method: str, plain: Plain, iterator: Any, recording: Recording | None) -> Shown:
        """See `Runner.run`."""
        if method in self._failed or self._distributed():
            return Shown(plain(_as_iterator(iterator)), {}, single=False)
        if recording is not None and method == "train_step":
            self._tell_of_rounding(recording)
        on_data = not isinstance(iterator, (*_ITERATORS, tf.experimental.Optional))
        given = next(iterator) if on_data else iterator
        attempt = self._attempt(method, recording, given, on_data=on_data)
        if attempt is None:
            self._failed.add(method)
            # Nothing has run yet, so the batch is still to be done.
            rest = iter((given,)) if on_data else _as_iterator(given)
            return Shown(plain(rest), {}, single=False)
        if isinstance(attempt, BaseException):
            raise attempt
        logs, tensors = attempt
        losses = frozenset(name for name in tensors if name.startswith("losses/"))
        return Shown(logs, tensors, losses)

    def batches(self, iterator: Any, most: int) -> Iterator[Any]:
        """See `Runner.batches`.

        A function that finds no data has done a part of its work all the same, so it is looked for
        here. Handed over as an Optional, a batch has no more of a shape than in Keras's function:
        where it is known, TensorFlow simplifies more, and rounds differently.
        """
        if not isinstance(iterator, _ITERATORS):
            yield from (iter((data,)) for data in itertools.islice(iterator, most))
            return
        for _ in range(most):
            batch = iterator.get_next_as_optional()
            if not batch.has_value():
                return
            yield batch

    def reset(self, method: str) -> None:
        """See `Runner.reset`."""
        self._variants.pop(method, None)
        self._failed.discard(method)

    def _attempted(
        self, method: str, recording: Recording | None, given: Any, *, on_data: bool
    ) -> Any:
        """Do a step; return what it returned, or what TensorFlow raised while it ran.

        Raises:
            Exception: it could not be traced; then nothing has run.
        """
        try:
            step = self._choose(method, recording)
            step.prepare_for(given, on_data=on_data)
            if self._take_in():
                # The model was built while it was traced, and more of it may be due.
                step = self._choose(method, recording)
            if complaint := step.complaint():
                self._shield.report(complaint)
            return step.run_on(given) if on_data else step.run(given)
        except tf.errors.OpError as error:
            return error

    def _choose(self, method: str, recording: Recording | None) -> TracedStep:
        variants = self._variants.get(method)
        if variants is None:

            def make(asks: Asks) -> TracedStep:
                return TracedStep(self._model, method, asks, self._collector)

            variants = self._variants[method] = Variants(method, make)
        if recording is None:
            return variants.choose(None)
        return variants.choose(recording.due, later=not recording.first_batch)

    def _tell_of_rounding(self, recording: Recording) -> None:
        """Say where the training may be rounded otherwise, once."""
        if self._model.jit_compile:
            self._shield.report(
                "the model is compiled by XLA, which may fuse the operations of a step otherwise "
                "when something of it is captured: the last bit of an update may differ; "
                "compile(…, jit_compile=False) keeps it from that"
            )
        elif self._model.compute_dtype == "bfloat16" and recording.due.reaches("gradients"):
            self._shield.report(
                "the model computes in bfloat16, where TensorFlow may fuse the operations of a "
                "step otherwise when its gradients are captured: the last bit of an update may "
                "differ; TF_ENABLE_ONEDNN_OPTS=0 keeps it from that"
            )

    def _distributed(self) -> bool:
        """Say whether several replicas run each step, which a second function could not show."""
        if self._model.distribute_strategy.num_replicas_in_sync == 1:
            return False
        self._shield.report(
            "the model runs on several replicas, of whose steps only losses and metrics are "
            "captured, as means of the epoch so far"
        )
        return True


def _as_iterator(iterator: Any) -> Any:
    """Return what Keras's own function takes in the place of one of `Runner.batches`."""
    if isinstance(iterator, tf.experimental.Optional):
        return iter((iterator.get_value(),))
    return iterator
