"""Values that a user hands to the hook by hand."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import ArrayCopier, TensorCopier
from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.store.collections.collection import BUILT_IN

__all__ = ["UserValues"]

# Values of one element are columns here, never tensors.
_SCALAR_KINDS = ("losses/", "metrics/")


class UserValues:
    """Puts a user's own values into the step or evaluation that is going on.

    Args:
        session: takes them.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def full_name(self, name: str, collection: str | None) -> str:
        """Return the name under which a value is stored.

        Raises:
            ConfigError: an empty name, or there is no such collection.
        """
        if not isinstance(name, str) or not name.strip("/"):
            raise ConfigError(f"name = {name!r}: must be a word, or words with slashes between")
        if collection is None:
            return name if "/" in name else f"saved/{name}"
        known = [*BUILT_IN, *self._session.recorder.config.collections]
        if collection not in known:
            raise ConfigError(
                f"collection = {collection!r}: no such collection{did_you_mean(collection, known)}"
            )
        return f"{collection}/{name}"

    def report(self, kind: str, given: Any, one: str) -> None:
        """Save what a training loop reports of a step: a value, or several by name.

        Args:
            kind: such as "inputs".
            given: a value, stored as ``<kind>/<one>``, or a mapping of names to values.
            one: the name of a single value.
        """
        due = self._session.recorder.current_due()
        # A loop reports all that it has; what nobody has asked for is left out without a word.
        if due is None or not due.reaches(kind):
            return
        for name, value in given.items() if isinstance(given, Mapping) else [(one, given)]:
            self.save(f"{kind}/{name}", value)

    def save(self, name: str, value: Any) -> None:
        """Save a value under its full name, if anything asks for it now.

        Raises:
            TypeError: it is no number, array or tensor.
        """
        plain = self._session.recorder.plain
        if plain is not None and isinstance(value, (bool, int, float)) and plain.due.ask(name):
            plain.explicit = True
            plain.add(name, float(value))
            return
        recording = self._session.recorder.current()
        if recording is None:
            return
        ask = recording.due.ask(name)
        if not ask:
            if not self._session.recorder.config.holds(name):
                self._session.shield.report(f"{name} is not saved: no collection holds that name")
            return
        recording.explicit = True
        if isinstance(value, (bool, int, float)):
            recording.add_scalar(name, float(value), recording.weight())
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
