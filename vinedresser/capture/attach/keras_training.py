"""Detection of Keras trainings: by `fit`, by `train_on_batch`, or in a custom loop."""

from __future__ import annotations

import sys
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from vinedresser.capture.attach.finder import TrainingFinder
from vinedresser.capture.attach.keras_variables import VariableTrainings
from vinedresser.capture.attach.keras_workers import repair_fit
from vinedresser.capture.attach.tracebacks import without_capture_frames
from vinedresser.capture.run.attachment import ATTACHMENT, Attachment
from vinedresser.frameworks.keras_.bare_variables import BareVariables
from vinedresser.frameworks.methods import listen

# Maximum number of steps before the second of two adversarial models is first trained.
_MAX_STEPS_BETWEEN = 10


class _KerasTrainings(TrainingFinder):
    """Watches Keras models when their training begins.

    The first ``fit`` of a model begins a training, and so does the first ``train_on_batch`` or call
    under a gradient tape of TensorFlow. Of the latter, models that begin within a few steps, such
    as adversarial ones, belong to one training. See also `VariableTrainings`.

    Args:
        attachment: opens and closes the hooks.
    """

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment, without_capture_frames)
        # Whether the training is the `fit` of one model.
        self._alone = False
        self._variables = VariableTrainings(
            attachment.shield, self._may_begin, self._watch_variables
        )
        # The layers of the watched models, by id.
        self._known: dict[int, weakref.ref[keras.layers.Layer]] = {}

    def start(self) -> None:
        """See `Finder.start`."""
        guard = self._attachment.shield.guard("attaching to Keras", self._begins)

        def fit(model: keras.Model) -> None:
            guard(model, alone=True)

        def together(model: keras.Model) -> None:
            guard(model, alone=False)

        def called(model: keras.Model) -> None:
            if _taped():
                guard(model, alone=False)

        listeners = (("fit", fit), ("train_on_batch", together), ("__call__", called))
        self._ends = [listen(keras.Model, name, listener) for name, listener in listeners]
        self._variables.start()

    def end(self) -> None:
        """See `Finder.end`."""
        super().end()
        self._variables.end()
        self._known.clear()

    def _begins(self, model: keras.Model, *, alone: bool) -> None:
        """Watch a model that is about to be trained.

        Args:
            alone: whether the training is the `fit` of this model.
        """
        reference = self._known.get(id(model))
        if reference is not None and reference() is model:
            return
        hook = None if alone or self._alone or self._may_begin() else self._hook
        if hook is None:
            self._alone = alone
            self._known.clear()
            hook = self._attach_hook()
        # From now on, other variables may be adversarial inputs.
        self._variables.end()
        name = model.name if self._known else None
        for layer in model._flatten_layers():
            self._known[id(layer)] = weakref.ref(layer)
        with _outside_functions():
            hook.watch(model, name=name)

    def _may_begin(self) -> bool:
        """Return whether another training than the present one may begin."""
        return self._hook is None or self._hook.steps > _MAX_STEPS_BETWEEN

    def _watch_variables(self, trained: list[tuple[BareVariables, Any, str | None]]) -> None:
        """Watch variables that optimizers update although they belong to no model."""
        hook = self._attach_hook()
        for variables, optimizer, name in trained:
            hook.watch(variables, optimizer=optimizer, name=name)


def attach() -> None:
    """Start looking for trainings."""
    ATTACHMENT.shield.guard("repairing fit", repair_fit)(ATTACHMENT.shield.report)
    ATTACHMENT.search(_KerasTrainings(ATTACHMENT))


def _outside_functions() -> AbstractContextManager[Any]:
    """Return a context in which variables have values although a function is being traced."""
    tensorflow = sys.modules.get("tensorflow")
    return nullcontext() if tensorflow is None else tensorflow.init_scope()


def _taped() -> bool:
    """Return whether a gradient tape of TensorFlow is recording."""
    record = sys.modules.get("tensorflow.python.eager.record")
    return record is not None and bool(record.could_possibly_record())
