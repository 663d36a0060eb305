"""Values that the user saves or reports explicitly."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import ArrayCopier, TensorCopier
from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.store.collections.collection import BUILT_IN, FIRST_LABEL, TERMS

__all__ = ["LoopSteps", "UserValues"]

# In these kinds, values of one element are scalars.
_SCALAR_KINDS = ("losses/", "metrics/", TERMS)
# The kind and the name of a single value, by argument of `Hook.step`.
_REPORTED = {
    "inputs": ("inputs", "batch"),
    "labels": ("labels", "batch"),
    "outputs": ("predictions", "batch"),
    "loss": ("losses", "loss"),
    "metrics": ("metrics", "metric"),
}


class UserValues:
    """Adds the user's values to the current step or evaluation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # The first problem of each name.
        self._refused: dict[str, str] = {}

    def full_name(self, name: str, collection: str | None) -> str:
        """Return the full name of a value.

        Raises:
            ConfigError: the name is empty, or the collection does not exist.
        """
        if not isinstance(name, str) or not name.strip("/"):
            raise ConfigError(f"name = {name!r}: must be a word, or words separated by slashes")
        if collection is None:
            return name if "/" in name else f"saved/{name}"
        known = [*BUILT_IN, *self._session.recorder.config.collections]
        if collection not in known:
            raise ConfigError(
                f"collection = {collection!r}: no such collection{did_you_mean(collection, known)}"
            )
        return f"{collection}/{name}"

    def report(self, kind: str, given: Any, one: str) -> None:
        """Save values that a training loop reports.

        Args:
            kind: kind of the values, such as "inputs".
            given: single value, stored as ``<kind>/<one>``, or values by name.
            one: name of a single value.
        """
        due = self._session.recorder.current_due()
        # A loop reports everything it has; skip values that no collection holds.
        if due is None or not due.reaches(kind):
            return
        for name, value in given.items() if isinstance(given, Mapping) else [(one, given)]:
            self.save(f"{kind}/{name}", value)

    def report_first_label(self, labels: Any) -> None:
        """Save the share of the labels of an evaluation that equal its first one.

        Only of one label per row, [rows] or [rows, 1].
        """
        name = f"{FIRST_LABEL}batch"
        recording = self._session.recorder.current()
        if recording is None or not recording.due.ask(name):
            return
        shape = np.shape(labels)
        if shape and 0 < math.prod(shape) == shape[0]:
            # numpy reads no tensors of a GPU, and no bfloat16.
            plain = labels.tolist() if hasattr(labels, "tolist") else labels
            recording.add_first_label(name, np.asarray(plain))

    def save(self, name: str, value: Any) -> None:
        """Save a value under its full name if a due collection holds it.

        A value that cannot be stored is reported once for its name.

        Args:
            value: number, array or tensor of any shape.
        """
        try:
            self._save(name, value)
        except (TypeError, ValueError, OverflowError) as error:
            why = str(error).removeprefix(f"{name}: ")
            problem = f"{name} is not saved: {why}; training continues"
            self._session.shield.report(self._refused.setdefault(name, problem))

    def _save(self, name: str, value: Any) -> None:
        number = _number(value)
        value = value if number is None else number
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise TypeError("it is masked: some of its elements have no value")
        if name.startswith(_SCALAR_KINDS):
            _check_number(value)
        if name.startswith(TERMS) and math.prod(shape := np.shape(value)) != 1:
            raise TypeError(f"its shape is {[*shape]}; pass one number, as it is added to the loss")
        plain = self._session.recorder.plain
        if plain is not None and number is not None and plain.due.ask(name):
            plain.explicit = True
            plain.add(name, number)
            return
        recording = self._session.recorder.current()
        if recording is None:
            return
        ask = recording.due.ask(name)
        if not ask:
            if not self._session.recorder.config.holds(name):
                self._session.shield.report(f"{name} is not saved: no collection holds it")
            return
        recording.explicit = True
        if number is not None:
            recording.add_scalar(name, number, recording.weight())
            return
        copier = self._copier_of(value)
        if name.startswith(_SCALAR_KINDS) and copier.is_scalar(value):
            copier.keep_scalar(recording, name, value, recording.weight())
        else:
            copier.keep(recording, name, value, ask)

    def _copier_of(self, value: Any) -> TensorCopier:
        """Return the copier for a value's framework."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            from vinedresser.capture.torch_.copies.torch_copier import TorchCopier

            return self._session.copier(TorchCopier)
        return self._session.copier(ArrayCopier)


def _number(value: Any) -> float | None:
    """Return a real number of Python as a float; None for all else.

    Raises:
        OverflowError: it is too large.
        ValueError: it is a signalling NaN.
    """
    return float(value) if isinstance(value, Real | Decimal) else None


def _check_number(value: Any) -> None:
    """Refuse a value that is no number, and contains none."""
    if value is None or isinstance(value, str | bytes | bytearray | Mapping):
        raise TypeError(f"a {type(value).__name__} is not a number")
    if isinstance(value, complex) or "complex" in str(getattr(value, "dtype", "")):
        raise TypeError("it is complex; save its real part or its magnitude")


class LoopSteps:
    """Captures the steps that a loop reports itself.

    Args:
        values: saves the reported values.
    """

    def __init__(self, session: Session, values: UserValues) -> None:
        guard = session.shield.guard
        self._session = session
        self._report = guard("the report of a step", values.report)
        self._report_first_label = guard("the labels of an evaluation", values.report_first_label)
        # TrainingStopped passes the guard.
        self._end_step = guard("the end of a step", session.step_ended)

    def end(self, **reported: Any) -> None:
        """Save the values of a step or of an evaluation's batch, and end a step.

        Args:
            reported: values by argument of `Hook.step`; None: not reported.

        Raises:
            TrainingStopped: the training was asked to stop.
        """
        recorder = self._session.recorder
        if not recorder.quiet:
            for name, value in reported.items():
                if value is not None:
                    kind, one = _REPORTED[name]
                    self._report(kind, value, one)
            if recorder.explicit_mode == "eval" and not isinstance(reported["labels"], Mapping):
                self._report_first_label(reported["labels"])
        if recorder.explicit_mode in (None, "train"):
            self._end_step()
        else:
            self._session.stop_if_asked()
