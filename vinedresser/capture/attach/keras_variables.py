"""Detection of trainings of variables that belong to no Keras model."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import keras

from vinedresser.capture.attach.variables import names_of_tensors, variable
from vinedresser.capture.shield import Shield
from vinedresser.frameworks.keras_.bare_variables import BareVariables
from vinedresser.frameworks.methods import listen

__all__ = ["VariableTrainings"]

# The variables of an optimizer, and the name that tells it from others, or None.
_Trained = tuple[BareVariables, Any, str | None]


class VariableTrainings:
    """Looks for optimizers of Keras that update variables while no model is trained.

    An optimizer knows its variables after its first update, so the training is found at the second
    one, or if a `tf.function` makes the updates, at its second call.

    Args:
        shield: guards the callbacks.
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
