"""The guard of one Keras model: looks at the gradients before each update, takes snapshots."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from vinedresser.capture.keras_.backends.backend import first_length
from vinedresser.capture.keras_.guard.notes import NO_DATA, StepNotes
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.recording.alarms import gradient_alarm
from vinedresser.capture.recording.batch_source import BatchSource
from vinedresser.capture.recording.snapshot_taker import SnapshotTaker
from vinedresser.frameworks.keras_.codec import KerasCodec, digest, host_value, nonfinite_entries
from vinedresser.frameworks.keras_.gradient_step import gradients_by_path
from vinedresser.frameworks.keras_.model_state import (
    changing_variables,
    environment,
    host_values,
    optimizer_variables,
    parameters,
)
from vinedresser.snapshots.trees import Codec
from vinedresser.store.finding import Finding

# Path and gradient of each variable that an update changes.
_Gradients = list[tuple[str, Any]]


class KerasGuard:
    """Looks at the gradients of a model before each update, and provides snapshots of its steps.

    This class guards steps that run eagerly; see `TensorFlowGuard` for the others. Until the
    update, the batch is kept by reference, with copies of the variables that a forward changes.
    """

    def __init__(self, watched: WatchedModel, taker: SnapshotTaker) -> None:
        self._watched = watched
        self._names = watched.names
        self._backend = watched.backend
        self._taker = taker
        self._local = threading.local()
        self._loop: StepNotes | None = None
        # The step of which a snapshot is being taken: its notes, gradients and optimizer.
        self._noted: StepNotes | None = None
        self._gradients: _Gradients = []
        self._stepping: Any = None
        self._extra: list[str] = []
        self._in_graph = False
        # With non-finite weights there is nothing more to be learned.
        self._spent = False
        guard = watched.session.shield.guard
        self._begin = guard("the guard, before a step", self._notes_of, metered=False)
        self._look = guard("the guard, before an update", self._before_update, metered=False)
        self._note_call = guard("the guard, at a forward", self._noted_call, metered=False)
        self.took_loss = guard("the guard, at a loss", self._took_loss, metered=False)
        self._source = watched.names.prefix.rstrip(".")
        taker.sources[self._source] = self

    @property
    def codec(self) -> Codec:
        """See `SnapshotSource.codec`."""
        return KerasCodec()

    @contextmanager
    def making(self) -> Iterator[None]:
        """See `UpdateGuard.making`."""
        model, before = self._watched.model, vars(self._watched.model).get("train_step")
        vars(model)["train_step"] = self.step(model.train_step)
        try:
            yield
        finally:
            if before is None:
                del vars(model)["train_step"]
            else:
                vars(model)["train_step"] = before

    def step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a ``train_step`` that notes its batch and the state before it."""

        @functools.wraps(original)
        def train_step(data: Any) -> Any:
            before, self._local.notes = self._current, self._begin(data)
            try:
                return original(data)
            finally:
                self._local.notes = before

        return train_step

    def around(self, execute: Callable[[], Any], again: Callable[[Any], Any]) -> Any:  # noqa: ARG002
        """See `UpdateGuard.around`."""
        if self._watched.model.jit_compile:
            self._watched.session.shield.report(
                "the guard does not see the gradients of a model compiled by torch.compile"
            )
            return execute()
        # Keras looks the step up at each batch.
        with self.making():
            return execute()

    def call(self, args: Any, kwargs: Any) -> StepNotes | None:
        """See `UpdateGuard.call`."""
        if self._watched.busy or self._current is not None:
            return None
        return self._note_call(args, kwargs)

    def updating(
        self, optimizer: Any, gradients: Any, variables: Any, update: Callable[[], Any]
    ) -> Any:
        """See `UpdateGuard.updating`."""
        finding = self._look(optimizer, gradients, variables)
        if finding is not None:
            self._taker.stop(finding)
        self._loop = None
        return update()

    def remove(self) -> None:
        """See `UpdateGuard.remove`."""
        self._loop = self._noted = None
        self._taker.sources.pop(self._source, None)

    def contents(self) -> dict[str, Any]:
        """See `SnapshotSource.contents`."""
        notes = self._noted
        changing = host_values(changing_variables(self._names))
        if notes is not None:
            changing |= {path: host_value(one) for path, one in notes.before.items()}
        own = notes is not None and notes.data is not NO_DATA
        return {
            "parameters": host_values(parameters(self._names)),
            "buffers": changing,
            "own_step": own,
            "graph": self._in_graph,
            "data": notes.data if notes is not None and own else None,
            "origins": [source.packed() for source in self._sources(notes)],
            "loss": None if notes is None else notes.loss,
            "calls": [
                {
                    "args": one.args,
                    "kwargs": one.kwargs,
                    "losses": [
                        {"name": name, "value": value, "arguments": arguments}
                        for name, value, arguments in one.losses
                    ],
                }
                for one in ([] if notes is None or own else notes.calls)
            ],
            "gradients": {
                path: {"sha256": digest(one), "nonfinite": nonfinite_entries(one)}
                for path, one in self._gradients
            },
            "optimizers": [
                {
                    "type": type(optimizer).__name__,
                    "variables": [
                        np.array(host_value(each)) for each in optimizer_variables(optimizer)
                    ],
                    "steps_now": optimizer is self._stepping,
                }
                for optimizer in self._watched.optimizers()
                if optimizer.built
            ],
        }

    def shared(self) -> dict[str, Any]:
        """See `SnapshotSource.shared`."""
        return {"random": {} if self._noted is None else self._noted.random}

    def inexact(self) -> list[str]:
        """See `SnapshotSource.inexact`."""
        found = list(self._extra)
        if self._noted is not None and self._noted.too_many:
            found.append("the model was called too often in the step; its inputs are not kept")
        return found

    def environment(self) -> dict[str, Any]:
        """See `SnapshotSource.environment`."""
        return environment(self._watched.model)

    @property
    def _current(self) -> StepNotes | None:
        """The notes of the ``train_step`` that this thread runs or traces; None outside of one."""
        found: StepNotes | None = getattr(self._local, "notes", None)
        return found

    def _notes_of(self, data: Any = NO_DATA) -> StepNotes:
        """Return notes of a step that begins."""
        changing = changing_variables(self._names)
        before = {path: self._backend.snapshot(one) for path, one in changing.items()}
        return StepNotes(data, before, self._random())

    def _random(self) -> dict[str, Any]:
        """Return the states of the random generators that eager code may use."""
        if self._backend.tracing():
            return {}
        states = {"python": random.getstate(), "numpy": np.random.get_state(legacy=False)}
        if keras.backend.backend() == "torch":
            import torch

            states["torch"] = torch.get_rng_state()
        return states

    def _noted_call(self, args: Any, kwargs: Any) -> StepNotes | None:
        training = kwargs.get("training")
        if not (training or (training is None and self._backend.differentiating())):
            return None
        notes = self._loop_notes()
        notes.add_call(args, kwargs)
        return notes

    def _loop_notes(self) -> StepNotes:
        """Return the notes of the current step of a custom loop."""
        if self._loop is None:
            self._loop = self._notes_of()
        return self._loop

    def _took_loss(self, name: str, value: Any, arguments: tuple[Any, ...], *, total: bool) -> None:
        """Note a loss: ``total`` if it is that of the model's own ``compute_loss``."""
        notes = self._current or self._loop
        if notes is None:
            return
        if total:
            notes.loss = value
        elif notes.data is NO_DATA:
            notes.add_loss(name, value, arguments)

    def _before_update(self, optimizer: Any, gradients: Any, variables: Any) -> Finding | None:
        """Take the snapshots that are due; return a finding if the training has to stop."""
        if not self._watched.is_updated_by(optimizer, variables):
            return None
        named = self._named(optimizer, gradients, variables)
        notes = self._current or self._loop
        alarm = self._guards(optimizer) and not self._all_finite(named)
        if not (alarm or self._taker.due()):
            return None
        return self._take(notes, named, optimizer)

    def _guards(self, optimizer: Any) -> bool:
        """Return whether the gradients of an optimizer are looked at.

        A LossScaleOptimizer itself skips steps whose gradients overflow.
        """
        scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        return self._taker.guarding and not self._spent and not scales

    def _all_finite(self, gradients: _Gradients) -> bool:
        """Return whether all entries of gradients are finite; rarely False although they are."""
        import torch

        from vinedresser.frameworks.torch_.nonfinite import all_finite

        return all_finite(one for _, one in gradients if isinstance(one, torch.Tensor))

    def _take(self, notes: StepNotes | None, named: _Gradients, optimizer: Any) -> Finding | None:
        """Take a snapshot of a step whose tensors are concrete; return a finding if it stops.

        Args:
            optimizer: the optimizer that is about to make the update.
        """
        taker = self._taker
        bad = [(path, nonfinite_entries(one)) for path, one in named]
        affected = [
            (f"gradients/{self._names.prefix}{path}", number) for path, number in bad if number
        ]
        if not self._guards(optimizer):
            affected = []
        if affected and taker.alarmed and not self._weights_finite():
            self._spent, affected = True, []
        self._noted, self._gradients, self._stepping = notes, named, optimizer
        try:
            if affected:
                sources = self._sources(notes)
                alarm = gradient_alarm(affected, _losses(notes), taker.step, sources)
                finding = taker.record(alarm)
                return finding if taker.stopping else None
            if taker.due():
                taker.take_periodic()
            return None
        finally:
            self._noted, self._gradients, self._stepping, self._extra = None, [], None, []
            self._in_graph = False

    def _sources(self, notes: StepNotes | None) -> list[BatchSource]:
        """Return where the batch of a step comes from; [] if it is not known."""
        if notes is None:
            return []
        own = notes.data is not NO_DATA
        used = self._watched.session.recorder.batch
        origins = used.of_running_step() if own else used.origins
        if origins is None or not (own or len(notes.calls) == 1):
            return []
        given = notes.data if own else (notes.calls[0].args, notes.calls[0].kwargs)
        rows = first_length(one for one in keras.tree.flatten(given) if hasattr(one, "shape"))
        return [BatchSource(origins, rows == len(origins))]

    def _weights_finite(self) -> bool:
        return all(
            nonfinite_entries(parameter) == 0 for parameter in parameters(self._names).values()
        )

    def _named(self, optimizer: Any, gradients: Any, variables: Any) -> _Gradients:
        """Return the gradients of the model's parameters by path."""
        return list(gradients_by_path(self._names, optimizer, gradients, variables).items())


def _losses(notes: StepNotes | None) -> list[tuple[str, float]]:
    if notes is None:
        return []
    values = [("loss", notes.loss)] if notes.loss is not None else []
    values += [(name, value) for call in notes.calls for name, value, _ in call.losses]
    found = []
    for name, value in values:
        array = host_value(value)
        if array.size == 1:
            found.append((f"losses/{name}", float(array.reshape(()))))
    return found
