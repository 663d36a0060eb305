"""The guard of one Keras model on TensorFlow, whose steps are graphs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from vinedresser.capture.keras_.graphs.traced import stateful_random
from vinedresser.capture.keras_.guard.keras_guard import KerasGuard
from vinedresser.capture.keras_.guard.notes import NO_DATA, StepNotes
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.recording.snapshot_taker import SnapshotTaker
from vinedresser.frameworks import nesting
from vinedresser.frameworks.keras_.gradient_step import GradientStep
from vinedresser.frameworks.keras_.model_state import changing_variables
from vinedresser.snapshots.trees import LeftOut
from vinedresser.store.finding import Finding

# Values of the variable that the graphs read: look at nothing, look at the gradients, and take a
# snapshot of the next step in any case.
_OFF, _LOOK, _TAKE = 0, 1, 2


class _Interrupted(Exception):
    """A graph was interrupted before its update; the caller knows why."""


class TensorFlowGuard(KerasGuard):
    """Guards steps that run as graphs, and those that run eagerly.

    The update in a graph waits for an operation that does nothing as long as the gradients are
    finite, and else calls Python, which takes the snapshot in the middle of the step. XLA cannot
    call Python: there the update is skipped, the execution interrupted, and the step run again.
    """

    def __init__(self, watched: WatchedModel, taker: SnapshotTaker) -> None:
        super().__init__(watched, taker)
        self._value = _LOOK if taker.guarding else _OFF
        with tf.init_scope(), tf.device("CPU"):
            self._wanted = tf.Variable(self._value, dtype=tf.int32, trainable=False)
            # Whether XLA has skipped an update.
            self._skipped = tf.Variable(False, trainable=False)
        self._stop: Finding | None = None
        # Batch and state of an interrupted step that XLA compiled.
        self._interrupted: StepNotes | None = None
        self._loops: weakref.WeakKeyDictionary[Any, StepNotes] = weakref.WeakKeyDictionary()
        guard = watched.session.shield.guard
        self._add_alarm = guard("adding the guard to a graph", self._alarm_operation, metered=False)
        self._alarmed = guard("the guard, before an update", self._from_graph, metered=False)
        self._probe = guard("the guard, running a step again", self._run_again, metered=False)
        self._prepare = guard("the guard, before a step", self._set_wanted)

    @contextmanager
    def making(self) -> Iterator[None]:
        """See `KerasGuard.making`."""
        model = self._watched.model
        with super().making():
            if model.jit_compile and not model.run_eagerly and self._alone:
                vars(model)["_autoconvert_optionals"] = functools.partial(
                    self._around_xla, model._autoconvert_optionals
                )
            try:
                yield
            finally:
                vars(model).pop("_autoconvert_optionals", None)

    def around(self, execute: Callable[[], Any], again: Callable[[Any], Any]) -> Any:
        """See `KerasGuard.around`."""
        self._prepare()
        try:
            return execute()
        except tf.errors.OpError:
            stop, self._stop = self._stop, None
            if stop is not None:
                self._taker.stop(stop)
            notes, self._interrupted = self._interrupted, None
            if notes is None:
                raise
        finding = self._probe(notes)
        if finding is not None:
            self._taker.stop(finding)
        # As if nothing had happened.
        self._restore(notes)
        self._set(_OFF)
        try:
            return again(notes.data)
        finally:
            self._set(_OFF if self._spent else _LOOK)

    def call(self, args: Any, kwargs: Any) -> StepNotes | None:
        """See `KerasGuard.call`."""
        if keras.src.backend.common.symbolic_scope.in_symbolic_scope():
            return None
        return super().call(args, kwargs)

    def updating(
        self, optimizer: Any, gradients: Any, variables: Any, update: Callable[[], Any]
    ) -> Any:
        """See `KerasGuard.updating`."""
        if not self._backend.tracing():
            return super().updating(optimizer, gradients, variables, update)
        if not self._watched.is_updated_by(optimizer, variables):
            return update()
        if self._compiled_by_xla():
            if self._current is None or not self._alone:
                return update()
            return self._update_if_finite(optimizer, gradients, variables, update)
        operation = self._add_alarm(optimizer, gradients, variables)
        if operation is None:
            return update()
        with tf.control_dependencies([operation]):
            return update()

    def remove(self) -> None:
        """See `KerasGuard.remove`."""
        super().remove()
        self._set(_OFF)
        self._loops.clear()

    @property
    def _alone(self) -> bool:
        """Whether each execution is one step on one device."""
        model = self._watched.model
        one = model.distribute_strategy.num_replicas_in_sync == 1
        if not (one and model.steps_per_execution == 1):
            self._watched.session.shield.report(
                "the guard does not see the gradients of a model that is compiled by XLA with "
                "several steps per execution or several replicas"
            )
            return False
        return True

    def _compiled_by_xla(self) -> bool:
        if self._current is not None:
            return bool(self._watched.model.jit_compile)
        return False

    def _set(self, value: int) -> None:
        if value != self._value:
            self._value = value
            self._wanted.assign(value)

    def _set_wanted(self) -> None:
        """Ask the graphs for a periodic snapshot if it is due."""
        looking = _LOOK if self._taker.guarding and not self._spent else _OFF
        self._set(_TAKE if self._taker.due() else looking)

    def _loop_notes(self) -> StepNotes:
        if not self._backend.tracing():
            return super()._loop_notes()
        graph = tf.compat.v1.get_default_graph()
        found = self._loops.get(graph)
        if found is None:
            found = self._loops[graph] = self._notes_of()
        return found

    def _present_notes(self) -> StepNotes | None:
        """Return the notes of the step that is being traced."""
        if self._current is not None:
            return self._current
        graph = tf.compat.v1.get_default_graph()
        while graph is not None:
            if graph in self._loops:
                return self._loops.pop(graph)
            graph = getattr(graph, "outer_graph", None)
        return None

    def _took_loss(self, name: str, value: Any, arguments: tuple[Any, ...], *, total: bool) -> None:
        if self._current is None and self._backend.tracing():
            notes = self._loops.get(tf.compat.v1.get_default_graph())
            if notes is not None and not total:
                notes.add_loss(name, value, arguments)
            return
        super()._took_loss(name, value, arguments, total=total)

    def _all_finite(self, gradients: list[tuple[str, Any]]) -> bool:
        return bool(np.isfinite(float(_sum_of_squares([one for _, one in gradients]))))

    def _alarm_operation(self, optimizer: Any, gradients: Any, variables: Any) -> Any:
        """Return an operation of the graph for which the update has to wait."""
        _build(optimizer, variables)
        named = self._named(optimizer, gradients, variables)
        notes = (self._present_notes() or StepNotes(NO_DATA, {})).mapped(_reachable)
        inputs: list[Any] = []

        def place(tensor: Any) -> Any:
            if not isinstance(tensor, tf.Tensor):
                return tensor
            inputs.append(tensor)
            return _Place(len(inputs) - 1)

        paths = [path for path, _ in named]
        values = [one for _, one in named]
        frame = notes.mapped(place)
        called = functools.partial(
            self._call_python,
            frame,
            paths,
            optimizer,
            weakref.ref(tf.compat.v1.get_default_graph()),
        )
        wanted = self._wanted.read_value()
        alarm = tf.equal(wanted, _TAKE)
        if self._guards(optimizer) and values:
            bad = tf.logical_not(tf.math.is_finite(_sum_of_squares(values)))
            alarm = tf.logical_or(alarm, tf.logical_and(tf.equal(wanted, _LOOK), bad))
        return tf.cond(
            alarm,
            lambda: tf.py_function(called, [*values, *inputs], tf.bool),
            lambda: tf.constant(True),
        )

    def _call_python(
        self, frame: StepNotes, paths: list[str], optimizer: Any, graph: Any, *tensors: Any
    ) -> bool:
        """Take a snapshot in the middle of a graph."""
        values, inputs = tensors[: len(paths)], tensors[len(paths) :]
        self._stop = self._alarmed(
            _filled(frame, inputs), list(zip(paths, values, strict=True)), optimizer, graph()
        )
        if self._stop is not None:
            raise _Interrupted
        return True

    def _from_graph(
        self, notes: StepNotes, named: list[tuple[str, Any]], optimizer: Any, graph: Any
    ) -> Finding | None:
        self._in_graph = True
        drawn = [] if graph is None else stateful_random(graph)
        if drawn:
            self._extra.append(f"random numbers of {', '.join(drawn)} cannot be drawn again")
        replicas = self._watched.model.distribute_strategy.num_replicas_in_sync
        if replicas > 1:
            self._extra.append(
                f"one of {replicas} replicas: its part of the batch, and its gradients before they "
                "are summed"
            )
        self._set(_LOOK if self._taker.guarding else _OFF)
        return self._take(notes, named, optimizer)

    def _update_if_finite(
        self, optimizer: Any, gradients: Any, variables: Any, update: Callable[[], Any]
    ) -> Any:
        """Update in a function compiled by XLA; skip it and say so if gradients are not finite."""
        _build(optimizer, variables)
        values = [one for one in map(self._backend.dense, gradients) if one is not None]
        wanted = self._wanted.read_value()
        skip = tf.equal(wanted, _TAKE)
        if self._guards(optimizer):
            bad = tf.logical_not(tf.math.is_finite(_sum_of_squares(values)))
            skip = tf.logical_or(skip, tf.logical_and(tf.equal(wanted, _LOOK), bad))
        self._skipped.assign(skip)

        def updated() -> Any:
            update()
            return tf.constant(True)

        tf.cond(skip, lambda: tf.constant(False), updated)
        return None

    def _around_xla(self, convert: Callable[[Any], Any], step: Callable[[Any], Any]) -> Any:
        """Return a step on a batch that is interrupted if XLA has skipped the update.

        Args:
            convert: the model's own wrapper of such a step.
            step: the step compiled by XLA.
        """
        inner = convert(step)

        @functools.wraps(inner)
        def on_data(data: Any) -> Any:
            changing = self._restorable()
            before = {path: self._backend.read(one) for path, one in changing.items()}
            result = inner(data)
            inputs: list[Any] = []

            def place(tensor: Any) -> Any:
                inputs.append(tensor)
                return _Place(len(inputs) - 1)

            frame = StepNotes(data, before).mapped(place)
            called = functools.partial(self._interrupt, frame)
            tf.cond(
                self._skipped.read_value(),
                lambda: tf.py_function(called, inputs, tf.bool),
                lambda: tf.constant(True),
            )
            return result

        return on_data

    def _interrupt(self, frame: StepNotes, *inputs: Any) -> bool:
        """Keep batch and state of a step whose update was skipped."""
        self._interrupted = _filled(frame, inputs)
        raise _Interrupted

    def _restorable(self) -> dict[str, Any]:
        """Return the variables that a step without its update changes, by path."""
        metrics = self._watched.model.metrics_variables
        return changing_variables(self._names) | {
            f"metric.{place}": one for place, one in enumerate(metrics)
        }

    def _restore(self, notes: StepNotes) -> None:
        for path, variable in self._restorable().items():
            if path in notes.before:
                variable.assign(notes.before[path])

    def _run_again(self, notes: StepNotes) -> Finding | None:
        """Take a snapshot of an interrupted step from a second run of it."""
        self._in_graph = True
        self._restore(notes)
        model = self._watched.model
        loss, gradients = GradientStep(model, self._names).run(notes.data)
        self._restore(notes)
        kept = {path: one for path, one in notes.before.items() if not path.startswith("metric.")}
        self._extra.append(
            "compiled by XLA, which may round differently: loss and gradients are those of a "
            "second run, of a function that returns them"
        )
        known = StepNotes(notes.data, kept, loss=loss)
        return self._take(known, list(gradients.items()), model.optimizer)


class _Place:
    """The place of a tensor among the arguments of a call from a graph."""

    def __init__(self, number: int) -> None:
        self.number = number


def _filled(frame: StepNotes, inputs: Any) -> StepNotes:
    """Return notes with the tensors that a graph has passed."""

    def fill(value: Any) -> Any:
        return inputs[value.number] if isinstance(value, _Place) else value

    found = frame.mapped(lambda one: one)
    found.data = nesting.mapped(found.data, fill)
    found.before, found.loss = nesting.mapped(found.before, fill), nesting.mapped(found.loss, fill)
    for call in found.calls:
        filled = nesting.mapped((call.args, call.kwargs, call.losses), fill)
        call.args, call.kwargs, call.losses = filled
    return found


def _reachable(tensor: Any) -> Any:
    """Return a tensor if the graph being traced can use it, else why it is missing."""
    graph = getattr(tensor, "graph", None) if tf.is_symbolic_tensor(tensor) else None
    present = tf.compat.v1.get_default_graph()
    while graph is not None and present is not None:
        if present is graph:
            return tensor
        present = getattr(present, "outer_graph", None)
    return tensor if graph is None else LeftOut("it is computed inside a loop or branch")


def _build(optimizer: Any, variables: Any) -> None:
    """Make the variables of an optimizer outside of the graph, in which they have no value yet."""
    if not optimizer.built and variables is not None:
        with tf.init_scope(), keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(list(variables))


def _sum_of_squares(gradients: list[Any]) -> Any:
    """Return half the sum of the squares of all entries: float32 or float64 []."""
    if not gradients:
        return tf.constant(0.0)
    wide = [
        tf.cast(gradient, tf.float32) if gradient.dtype in (tf.float16, tf.bfloat16) else gradient
        for gradient in gradients
    ]
    return tf.add_n([tf.cast(tf.nn.l2_loss(one), tf.float32) for one in wide])
