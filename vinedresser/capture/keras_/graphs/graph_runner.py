"""Steps that run as TensorFlow graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.graphs.traced import TracedStep
from vinedresser.capture.keras_.graphs.variants import Variants
from vinedresser.capture.keras_.observation.due_filter import DueFilter
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.step_runner import StepFunction, StepResult, StepRunner
from vinedresser.capture.recording.recording import Recording

_ITERATORS = (tf.data.Iterator, tf.distribute.DistributedIterator)


class GraphRunner(StepRunner):
    """Calls a second function of the model, traced for the due tensors, unless it runs eagerly."""

    def __init__(self, watched: WatchedModel) -> None:
        super().__init__(watched)
        self._model = watched.model
        self._introduce_layers = watched.introduce_layers
        self._shield = watched.session.shield
        self._making = watched.making
        self._variants: dict[str, Variants[TracedStep]] = {}
        # Methods whose trace failed.
        self._failed: set[str] = set()
        self._attempt = self._shield.guard(
            "tracing a step",
            self._run_traced,
            then="training continues; its losses are running means of the epoch, and no tensors of "
            "its steps are captured",
            metered=False,
        )

    def run(
        self, method: str, original: StepFunction, iterator: Any, recording: Recording | None
    ) -> StepResult:
        """See `StepRunner.run`."""
        if self._model.run_eagerly:
            return super().run(method, original, iterator, recording)
        if method in self._failed or self._distributed():
            return StepResult(original(_as_iterator(iterator)))
        if recording is not None and method == "train_step":
            self._report_rounding(recording)
        on_data = not isinstance(iterator, (*_ITERATORS, tf.experimental.Optional))
        given = next(iterator) if on_data else iterator
        attempt = self._attempt(method, recording, given, on_data=on_data)
        if attempt is None:
            self._failed.add(method)
            # Nothing has run yet, so the batch must still be run.
            rest = iter((given,)) if on_data else _as_iterator(given)
            return StepResult(original(rest))
        if isinstance(attempt, BaseException):
            raise attempt
        logs, tensors = attempt
        losses = frozenset(name for name in tensors if name.startswith("losses/"))
        return StepResult(logs, tensors, losses, single=True)

    def batches(self, iterator: Any, limit: int) -> Iterator[Any]:
        """See `StepRunner.batches`.

        The end of the data is detected here, since a step function would do part of its work before
        it finds no batch. Batches are passed as Optionals, whose static shape is the same as in
        Keras's function: with more static shape, TensorFlow simplifies more and rounds differently.
        """
        if self._model.run_eagerly or not isinstance(iterator, _ITERATORS):
            yield from super().batches(iterator, limit)
            return
        for _ in range(limit):
            batch = iterator.get_next_as_optional()
            if not batch.has_value():
                return
            yield batch

    def reset(self, method: str) -> None:
        """See `StepRunner.reset`."""
        self._variants.pop(method, None)
        self._failed.discard(method)

    def _run_traced(
        self, method: str, recording: Recording | None, given: Any, *, on_data: bool
    ) -> Any:
        """Run a step; return its result and tensors, or TensorFlow's runtime error.

        Raises:
            Exception: The step could not be traced; nothing has run.
        """
        try:
            step = self._choose(method, recording)
            step.prepare_for(given, on_data=on_data)
            if self._introduce_layers():
                # The trace has built layers, whose tensors may be due.
                step = self._choose(method, recording)
            if warning := step.unreachable_warning():
                self._shield.report(warning)
            return step.run_on(given) if on_data else step.run(given)
        except tf.errors.OpError as error:
            return error

    def _choose(self, method: str, recording: Recording | None) -> TracedStep:
        variants = self._variants.get(method)
        if variants is None:

            def make(is_due: DueFilter) -> TracedStep:
                making = self._making if method == "train_step" else nullcontext
                return TracedStep(self._model, method, is_due, self._collector, making)

            variants = self._variants[method] = Variants(method, make)
        if recording is None:
            return variants.choose(None)
        return variants.choose(recording.due, later=not recording.first_batch)

    def _report_rounding(self, recording: Recording) -> None:
        """Report once if capture may change the rounding of the training."""
        if self._model.jit_compile:
            self._shield.report(
                "the model is compiled by XLA, which may fuse the operations of a captured step "
                "differently: the last bit of an update may differ; compile(…, jit_compile=False) "
                "prevents this"
            )
        elif self._model.compute_dtype == "bfloat16" and recording.due.reaches("gradients"):
            self._shield.report(
                "the model computes in bfloat16, where TensorFlow may fuse the operations of a "
                "step differently if its gradients are captured: the last bit of an update may "
                "differ; TF_ENABLE_ONEDNN_OPTS=0 prevents this"
            )

    def _distributed(self) -> bool:
        """Return whether several replicas run each step, which is not supported."""
        if self._model.distribute_strategy.num_replicas_in_sync == 1:
            return False
        self._shield.report(
            "the model runs on several replicas: only losses and metrics of its steps are "
            "captured, as running means of the epoch"
        )
        return True


def _as_iterator(iterator: Any) -> Any:
    """Convert an item of `StepRunner.batches` to an argument for Keras's own function."""
    if isinstance(iterator, tf.experimental.Optional):
        return iter((iterator.get_value(),))
    return iterator
