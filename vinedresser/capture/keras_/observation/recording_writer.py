"""Writing of named tensors into recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinedresser.capture.keras_.backends.backend import Backend
from vinedresser.capture.keras_.observation.collector import is_loss
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import TensorCopier
from vinedresser.frameworks.keras_.names import Names

_OF_ROWS = ("labels/", "predictions/")
_SCALARS = ("losses/", "metrics/", "optimizer_state/", "state/")


class RecordingWriter:
    """Writes tensors into recordings if they are due.

    Args:
        names: names of the model.

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
            recording: the recording.
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
