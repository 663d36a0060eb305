"""Detection of Keras trainings: by `fit`, by `train_on_batch`, or in a custom loop."""

from __future__ import annotations

import json
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from vinedresser.capture.attach.finder import TrainingFinder
from vinedresser.capture.attach.tracebacks import without_capture_frames
from vinedresser.capture.attach.variables import names_of_tensors, variable
from vinedresser.capture.run.attachment import ATTACHMENT, Attachment
from vinedresser.capture.shield import Shield
from vinedresser.frameworks.keras_.bare_variables import BareVariables
from vinedresser.frameworks.methods import listen

__all__ = ["attach", "repair_fit"]

# Maximum number of steps before the second of two adversarial models is first trained.
_MAX_STEPS_BETWEEN = 10
# The variables of an optimizer, and the name that tells it from others, or None.
_Trained = tuple[BareVariables, Any, str | None]
# Versions whose `fit` was compared with that of one process (tests/capture/attach).
_TESTED = ("3.15.1",)


class _KerasTrainings(TrainingFinder):
    """Watches Keras models when their training begins.

    The first ``fit`` of a model begins a training, and so does the first ``train_on_batch`` or call
    under a gradient tape of TensorFlow. Of the latter, models that begin within a few steps, such
    as adversarial ones, belong to one training. See also `_VariableTrainings`.

    Args:
        attachment: opens and closes the hooks.
    """

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment, without_capture_frames)
        # Whether the training is the `fit` of one model.
        self._alone = False
        self._variables = _VariableTrainings(
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


class _VariableTrainings:
    """Looks for optimizers of Keras that update variables while no model is trained.

    An optimizer knows its variables after its first update, so the training is found at the second
    one, or if a `tf.function` makes the updates, at its second call.

    Args:
        may_begin: returns whether a training may begin now.
        begin: watches the variables of a new training.
    """

    def __init__(
        self,
        shield: Shield,
        may_begin: Callable[[], bool],
        begin: Callable[[list[_Trained]], object],
    ) -> None:
        self._may_begin = may_begin
        self._begin = begin
        self._look = shield.guard("looking for trained variables", self._look_for_variables)
        # The optimizers of trainings, and those that have been asked for an update since.
        self._known: list[weakref.ref[Any]] = []
        self._new: list[weakref.ref[Any]] = []
        self._ends: list[Callable[[], None]] = []
        self._end_calls: Callable[[], None] | None = None

    def start(self) -> None:
        """Start looking."""
        if keras.backend.backend() == "tensorflow":
            names = ("apply_gradients", "apply")
            kind = keras.optimizers.Optimizer
            self._ends = [listen(kind, name, self._updates) for name in names]

    def end(self) -> None:
        """Stop looking."""
        self._ignore_calls()
        while self._ends:
            self._ends.pop()()
        self._known.clear()
        self._new.clear()

    def _updates(self, optimizer: Any) -> None:
        """Note that an optimizer is about to make an update."""
        if any(one() is optimizer for one in self._known):
            return
        if any(one() is optimizer for one in self._new):
            # Others are built in their first updates.
            if optimizer.built:
                self._look()
            return
        self._new.append(weakref.ref(optimizer))
        if self._end_calls is None:
            kind = type(_tensorflow().function(lambda: None))
            self._end_calls = listen(kind, "__call__", lambda _: self._look())

    def _look_for_variables(self) -> None:
        """Begin a training if variables have been updated."""
        found = [one for reference in self._new if (one := reference()) and one.built]
        if not found or _tensorflow().inside_function() or not self._may_begin():
            return
        self._ignore_calls()
        self._known = [weakref.ref(one) for one in found]
        self._new.clear()
        several = len(found) > 1
        self._begin(
            [
                (
                    BareVariables(_named(one._trainable_variables)),
                    one,
                    (variable(one) or type(one).__name__) if several else None,
                )
                for one in found
            ]
        )

    def _ignore_calls(self) -> None:
        """Look no longer at the calls of functions of TensorFlow."""
        end, self._end_calls = self._end_calls, None
        if end is not None:
            end()


def _named(variables: Iterable[Any]) -> dict[str, Any]:
    """Return variables by their names in the calling code, or else those given to them."""
    found: dict[str, Any] = {}
    for name, one in names_of_tensors(variables).items():
        own = re.sub(r"\W", "_", str(getattr(one, "path", one.name)).partition(":")[0])
        found[own if name.startswith("tensor_") and own not in ("Variable", *found) else name] = one
    return found


def _tensorflow() -> Any:
    """Return the module, which Keras has imported."""
    return sys.modules["tensorflow"]


def repair_fit(report: Callable[[str], None]) -> None:
    """Let `fit`, `evaluate` and `predict` work if this process is one of several workers.

    Without such a strategy they remain as they are.

    Args:
        report: called with a sentence if this version of Keras is not known.
    """
    if keras.backend.backend() != "tensorflow" or not _has_peers():
        return
    if keras.__version__ not in _TESTED:
        report(
            f"Keras {keras.__version__}: fit under MultiWorkerMirroredStrategy is left as it is; "
            f"it is known to fail in some versions, and repaired in {', '.join(_TESTED)}"
        )
        return
    from keras.src.backend.tensorflow import trainer

    reduce_per_replica = trainer.reduce_per_replica
    build = trainer.TensorFlowTrainer._maybe_symbolic_build

    def reduced(values: Any, strategy: Any, reduction: str) -> Any:
        words = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}
        if reduction not in words or not trainer._collective_all_reduce_multi_worker(strategy):
            return reduce_per_replica(values, strategy, reduction)
        return keras.tree.map_structure(
            lambda value: strategy.reduce(words[reduction], value, axis=None), values
        )

    def built(model: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = model.distribute_strategy
        if iterator is None or not trainer._collective_all_reduce_multi_worker(strategy):
            build(model, iterator=iterator, data_batch=data_batch)
            return
        for _, _, batches in iterator:
            data_batch = keras.tree.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
            break
        with strategy.scope():
            model._symbolic_build(data_batch=data_batch)

    trainer.reduce_per_replica = reduced
    trainer.TensorFlowTrainer._maybe_symbolic_build = built


def _has_peers() -> bool:
    """Return whether TensorFlow's configuration names several workers."""
    try:
        workers = json.loads(os.environ.get("TF_CONFIG", "{}"))["cluster"]["worker"]
    except (KeyError, TypeError, ValueError):
        # TensorFlow itself refuses an invalid one.
        return False
    return isinstance(workers, list) and len(workers) > 1
