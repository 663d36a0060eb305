"""From named tensors to recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinedresser.capture.keras_.backends.backend import Backend
from vinedresser.capture.keras_.names import Names
from vinedresser.capture.keras_.steps.collector import is_loss
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import TensorCopier

__all__ = ["Keeping"]

_SCALARS = ("losses/", "metrics/", "optimizer_state/")


class Keeping:
    """Puts what was seen into recordings, as far as it is due.

    Args:
        session: of the run.
        names: of the model.
        backend: under Keras.
    """

    def __init__(self, session: Session, names: Names, backend: Backend) -> None:
        self._names = names
        self._backend = backend
        self._copier: TensorCopier = backend.copier(session)
        self.keep = session.shield.guard("keeping a tensor", self._keep, names=1)

    def logs(self, recording: Recording, logs: Any, *, known: frozenset[str] = frozenset()) -> None:
        """Keep what a step of Keras has returned as its losses and metrics.

        Args:
            recording: takes them.
            logs: numbers by name; anything else is passed over.
            known: full names of those that are known better already.
        """
        if not isinstance(logs, Mapping):
            return
        for key, value in logs.items():
            name = f"{'losses' if is_loss(str(key)) else 'metrics'}/{self._names.prefix}{key}"
            if name not in known:
                self.keep(recording, name, value)

    def variables(self, recording: Recording) -> None:
        """Keep the model's weights, biases and buffers as they are now."""
        due = recording.due
        if any(due.reaches(kind) for kind in ("weights", "biases", "buffers")):
            for variable in self._names.variables():
                if due.ask(variable.name):
                    self.keep(recording, variable.name, self._backend.read(variable.value))

    def _keep(self, recording: Recording, name: str, value: Any, weight: float = 1.0) -> None:
        """Keep what is due of a tensor; a loss or a learning rate is a number, not a tensor."""
        ask = recording.due.ask(name)
        if not ask:
            return
        number = name.startswith(_SCALARS) and not tuple(getattr(value, "shape", ()))
        if number and self._copier.is_scalar(value):
            self._copier.keep_scalar(recording, name, value, weight)
        else:
            self._copier.keep(recording, name, self._backend.dense(value), ask)
