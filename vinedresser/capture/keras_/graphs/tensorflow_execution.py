"""Execution on the TensorFlow backend: as graphs, or eagerly with ``run_eagerly``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import cache
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from vinedresser.capture.adapters.training_setup import plain_settings
from vinedresser.capture.keras_.backends.tensorflow_operations import stop_recording
from vinedresser.capture.keras_.graphs.traced import TracedStep
from vinedresser.capture.keras_.graphs.user_functions import UserFunctions
from vinedresser.capture.keras_.graphs.variants import Variants
from vinedresser.capture.keras_.observation.comparisons import Comparison, LossFunction
from vinedresser.capture.keras_.observation.due_filter import DueFilter
from vinedresser.capture.keras_.observation.interception import (
    notify_comparison,
    notify_differentiation,
)
from vinedresser.capture.keras_.observation.observers import Original, PatchPoint
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.step_runner import Execution, StepFunction, StepResult, StepRunner
from vinedresser.capture.recording.recording import Recording

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
_ITERATORS = (tf.data.Iterator, tf.distribute.DistributedIterator)


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
        super().__init__(_GraphRunner(watched))
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


class _GraphRunner(StepRunner):
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
