"""State of one watched model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vinedresser.capture.keras_.backends.backend import Backend, backend_in_use
from vinedresser.capture.keras_.observation.collector import Collector, is_loss
from vinedresser.capture.keras_.observation.comparisons import LossFunction, is_same_loss
from vinedresser.capture.keras_.observation.due_filter import DueFilter, Emit
from vinedresser.capture.keras_.observation.loop_losses import (
    LoopLosses,
    LoopUpdate,
    LossSource,
    WatchedTogether,
)
from vinedresser.capture.keras_.observation.observers import UpdateGuard
from vinedresser.capture.keras_.observation.optimizer_update import StepCounter
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import TensorCopier
from vinedresser.frameworks.keras_.bare_variables import BareVariables
from vinedresser.frameworks.keras_.names import Names

_OF_ROWS = ("labels/", "predictions/")
_SCALARS = ("losses/", "metrics/", "optimizer_state/", "state/")


class WatchedModel:
    """A watched model with its names, optimizers and step count.

    Args:
        optimizer: the optimizer whose steps are counted; None for the first that updates the model.
        name: prefix of the model's tensor names; None for no prefix.
        adapter: leads the session if the run's steps are those of this model.
        on_new_layers: called when the model has new layers.

    Attributes:
        names: names of its layers and variables.
        writer: writes captured tensors into recordings.
        busy: whether a loop of Keras is running the model, which captures by itself.
        bare: whether it stands for variables without a model, and is never called.
        guard: looks at its gradients, and takes snapshots of its steps; None: nobody wants any.
        source: where the loss of a custom loop comes from; None until it is known.
        comparing: loss object of Keras to which a custom loop passes the output of the model; None
            until there was one.

    Raises:
        ConfigError: The backend is not supported.
        ImportError: The backend's package is not installed.
    """

    def __init__(
        self,
        session: Session,
        model: Any,
        *,
        optimizer: Any,
        name: str | None,
        adapter: object,
        on_new_layers: Callable[[], None],
    ) -> None:
        self.session = session
        self.model = model
        self.names = Names(model, name)
        self.backend: Backend = backend_in_use()
        self.writer = _RecordingWriter(session, self.names, self.backend)
        self.counter = StepCounter(model, optimizer)
        self.busy = False
        self.bare = isinstance(model, BareVariables)
        self.guard: UpdateGuard | None = None
        self.source: LossSource | None = None
        self.comparing: Any = None
        self._sought = False
        self._together = session.shared(WatchedTogether)
        self._together.models += 1
        self._adapter = adapter
        guard = session.shield.guard
        self._on_new_layers = guard("taking in layers that were built late", on_new_layers)
        # Ids of the known layers, and whether some of them have not been introduced yet.
        self._layers = {id(layer) for _, layer in self.names.layers()}
        self._pending = False
        # Whether an optimizer updates the model, by its id; the optimizer keeps the id in use.
        self._optimizers: dict[int, tuple[bool, Any]] = {}
        if optimizer is not None:
            session.leader = adapter

    def register_layers(self, layers: Iterable[int]) -> None:
        """Register the model's current layers and introduce new ones.

        The run's record cannot be written while TensorFlow traces; `introduce_layers` must then be
        called after the trace.

        Args:
            layers: ids of the layers.
        """
        if not self._layers.issuperset(layers):
            self._layers.update(layers)
            self._pending = True
            if not self.backend.tracing():
                self.introduce_layers()

    def introduce_layers(self) -> bool:
        """Introduce pending layers to the run; return whether there were any."""
        pending, self._pending = self._pending, False
        if pending:
            self._on_new_layers()
        return pending

    def loop_losses(self) -> LoopLosses:
        """Return what relates the forward passes of a custom loop to its losses."""
        if self.bare:
            return LoopLosses(differentiating=self.backend.differentiating)
        return LoopLosses(self.backend.operations(self.session.shield))

    def making(self) -> AbstractContextManager[None]:
        """Return a context in which Keras makes the train function from a guarded step."""
        return nullcontext() if self.guard is None else self.guard.making()

    def leads(self) -> bool:
        """Return whether this model defines the run's steps; it does if none did before."""
        if self.session.leader is None:
            self.session.leader = self._adapter
        return self.session.leader is self._adapter

    def is_updated_by(self, optimizer: Any, variables: Any) -> bool:
        """Return whether an optimizer updates the model.

        Args:
            optimizer: the optimizer whose ``apply`` is called.
            variables: variables passed to ``apply``; None for all that it was built with.
        """
        known = self._optimizers.get(id(optimizer))
        if known is None:
            own = {id(variable) for variable in self.model.variables}
            own |= {id(getattr(variable, "_value", variable)) for variable in self.model.variables}
            given = optimizer._trainable_variables if variables is None else variables
            updates = any(id(one) in own or id(getattr(one, "_value", one)) in own for one in given)
            known = self._optimizers[id(optimizer)] = (updates, optimizer)
            self.session.newly_set_up |= updates
        return known[0]

    def losses_of(self, update: LoopUpdate, optimizer: Any, variables: Any) -> dict[str, Any]:
        """Return the loss, labels and predictions of an update in a custom loop, by full name.

        Those that are not certain are missing, and so is the loss if the script itself gives one.

        Args:
            update: what preceded it.
            optimizer: the optimizer whose ``apply`` is called.
            variables: variables passed to ``apply``; None for all that it was built with.
        """
        found, prefix = {}, self.names.prefix
        if not self.session.losses_reported:
            loss = update.take_loss(optimizer, variables)
            if loss is not None:
                found[f"losses/{prefix}loss"] = loss
                self._look_for_source(update, loss)
        comparison = update.comparison
        if comparison is not None and self._together.models == 1:
            self.comparing = self.comparing or comparison.loss
            # The value of a function may be weighted, as by the advantages of actions; without a
            # model, the predictions may be anything.
            of_loss = self.source is not None and is_same_loss(self.source.loss, comparison.loss)
            certain = of_loss or not (self.bare or isinstance(comparison.loss, LossFunction))
            if is_same_loss(comparison.loss, self.comparing) and certain:
                found[f"labels/{prefix}batch"] = comparison.labels
                found[f"predictions/{prefix}batch"] = comparison.predictions
        return found

    def _look_for_source(self, update: LoopUpdate, loss: Any) -> None:
        """Find out where the loss comes from, once: the device may have to be waited for."""
        if not self._sought and update.comparison is not None:
            self._sought = True
            self.source = update.source(loss)
            self.session.newly_set_up |= self.source is not None

    def _losses_of_own(self, update: LoopUpdate, optimizer: Any, variables: Any) -> dict[str, Any]:
        updates = self.is_updated_by(optimizer, variables)
        return self.losses_of(update, optimizer, variables) if updates else {}

    def optimizers(self) -> list[Any]:
        """Return the optimizers that update the model or are expected to."""
        seen = [optimizer for updates, optimizer in self._optimizers.values() if updates]
        expected = [self.counter.optimizer, getattr(self.model, "optimizer", None)]
        inner = {id(getattr(one, "inner_optimizer", None)) for one in (*expected, *seen)}
        found = {id(one): one for one in (*expected, *seen) if one is not None}
        return [one for key, one in found.items() if key not in inner]

    def collector(self, is_due: DueFilter, emit: Emit) -> Collector:
        """Return an observer of one step or forward pass.

        Args:
            is_due: returns whether the tensor of a full name is due.
            emit: receives the due tensors.
        """
        return Collector(
            self.names,
            self.backend,
            is_due,
            emit,
            on_layers=self.register_layers,
            shield=self.session.shield,
            # Keras itself computes the losses of its loops.
            losses_of=None if self.busy else self._losses_of_own,
            loop_losses=self.loop_losses(),
        )


class _RecordingWriter:
    """Writes tensors into recordings if they are due.

    Attributes:
        write: writes one tensor of any shape and dtype: ``write(recording, name, value, weight)``.
    """

    def __init__(self, session: Session, names: Names, backend: Backend) -> None:
        self._names = names
        self._backend = backend
        self._copier: TensorCopier = backend.copier(session)
        self.write = session.shield.guard("keeping a tensor", self._write, names=1)

    def write_logs(
        self, recording: Recording, logs: Any, *, known: frozenset[str] = frozenset()
    ) -> None:
        """Write the losses and metrics returned by a step of Keras.

        Args:
            logs: scalars by name, or by name mappings of such, whose keys are then the names, as in
                Keras's own logs; anything other than a mapping is ignored.
            known: full names to skip, since a more exact value was captured.
        """
        if not isinstance(logs, Mapping):
            return
        for key, value in logs.items():
            if isinstance(value, Mapping):
                self.write_logs(recording, value, known=known)
                continue
            name = f"{'losses' if is_loss(str(key)) else 'metrics'}/{self._names.prefix}{key}"
            if name not in known:
                self.write(recording, name, value)

    def write_variables(self, recording: Recording) -> None:
        """Write the current weights, biases and buffers of the model."""
        due = recording.due
        if any(due.reaches(kind) for kind in ("weights", "biases", "buffers")):
            for variable in self._names.variables():
                if due.ask(variable.name):
                    self.write(recording, variable.name, self._backend.read(variable.value))

    def _write(self, recording: Recording, name: str, value: Any, weight: float = 1.0) -> None:
        ask = recording.due.ask(name)
        if not ask:
            return
        number = name.startswith(_SCALARS) and not tuple(getattr(value, "shape", ()))
        if number and self._copier.is_scalar(value):
            self._copier.keep_scalar(recording, name, value, weight)
        else:
            if name.startswith(_OF_ROWS) and (shape := tuple(value.shape)):
                recording.saw_rows(int(shape[0]))
            self._copier.keep(recording, name, self._backend.dense(value), ask)
