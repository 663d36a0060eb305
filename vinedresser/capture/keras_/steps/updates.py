"""What an optimizer is about to do: the weights before, the gradients, its own state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras

from vinedresser.capture.keras_.backends.backend import Backend
from vinedresser.capture.keras_.names import NamedVariable, Names

__all__ = ["Update", "inner_optimizer", "updates_made"]


def inner_optimizer(optimizer: Any) -> Any:
    """Return the optimizer that updates the weights, inside of one that scales the loss."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def updates_made(optimizer: Any) -> int:
    """Return how often an optimizer has updated its weights so far."""
    inner = inner_optimizer(optimizer)
    return _number(inner._iterations) // (inner.gradient_accumulation_steps or 1)


class Update:
    """One call of an optimizer's ``apply``, before it does anything.

    Args:
        names: of a watched model.
        backend: under Keras.
        optimizer: as it is called.
        gradients: as they are given to it.
        variables: those they belong to; None: all that it was built with.
    """

    def __init__(
        self, names: Names, backend: Backend, optimizer: Any, gradients: Any, variables: Any
    ) -> None:
        self._names = names
        self._backend = backend
        self._optimizer = optimizer
        self._inner = inner_optimizer(optimizer)
        self._gradients = list(gradients)
        given = self._inner._trainable_variables if variables is None else variables
        self._variables = list(given)
        self._named = names.variables()
        self._paths = _Paths(self._named)
        # Full names of changes, the variables, and what they held before.
        self._before: list[tuple[str, Any, Any]] = []

    def hand_over(self, asks: Callable[[str], bool], take: Callable[[str, Any], None]) -> None:
        """Hand over what is asked for.

        Args:
            asks: says of a full name whether the tensor is asked for.
            take: takes it.
        """
        ours = [path for path in map(self._paths.find, self._variables) if path is not None]
        if not ours:
            return
        for variable in self._named:
            if asks(variable.name):
                take(variable.name, self._backend.read(variable.value))
        asked = {path for path in ours if asks(f"gradients/{path}")}
        if asked and self._comes_about():
            for variable, gradient in self._consumed():
                path = self._paths.find(variable)
                if path in asked:
                    take(f"gradients/{path}", self._backend.dense(gradient))
        for name, value in self._state():
            if asks(name):
                take(name, self._backend.read(value))
        changing = {f"updates/{path}" for path in ours if asks(f"updates/{path}")}
        if changing and self._comes_about():
            held = self._backend.held
            named = ((f"updates/{one.path}", one.value) for one in self._named)
            self._before = [(name, one, held(one)) for name, one in named if name in changing]

    def hand_over_change(self, take: Callable[[str, Any], None]) -> None:
        """Hand over by how much it has changed what it updates, if `hand_over` was asked for that.

        Args:
            take: takes the changes.
        """
        for name, variable, before in self._before:
            take(name, self._backend.held(variable) - before)
        self._before.clear()

    def _comes_about(self) -> bool:
        """Say whether weights will be updated; true while tracing, where nobody can know."""
        if self._backend.tracing():
            return True
        steps = self._inner.gradient_accumulation_steps
        if steps and (_number(self._inner._iterations) + 1) % steps:
            return False
        if self._optimizer is self._inner:
            return True
        given = [self._backend.dense(one) for one in self._gradients if one is not None]
        return bool(self._optimizer.check_finite(given))

    def _consumed(self) -> list[tuple[Any, Any]]:
        """Return variables with the gradients that they are updated by.

        Unscaled, accumulated and clipped, in this order, as `BaseOptimizer.apply` does.
        """
        pairs = zip(self._variables, self._gradients, strict=True)
        given = [(variable, gradient) for variable, gradient in pairs if gradient is not None]
        variables = [variable for variable, _ in given]
        gradients = [gradient for _, gradient in given]
        inner = self._inner
        if self._optimizer is not inner:
            built = self._optimizer.built
            scale = self._optimizer.dynamic_scale if built else self._optimizer.initial_scale
            gradients = [keras.ops.divide(one, scale) for one in gradients]
        if inner.loss_scale_factor is not None:
            gradients = [one / inner.loss_scale_factor for one in gradients]
        steps = inner.gradient_accumulation_steps
        if steps:
            sums = inner._accumulated_gradients if inner.built else None
            places = [inner._get_variable_index(one) for one in variables] if sums else []
            before = [sums[place] for place in places] if sums else [0.0] * len(variables)
            gradients = [(one + sum_) / steps for one, sum_ in zip(gradients, before, strict=True)]
        clipped = inner._clip_gradients(gradients) if gradients else []
        return list(zip(variables, clipped, strict=True))

    def _state(self) -> Iterator[tuple[str, Any]]:
        """Yield the optimizer's state: what it keeps of each variable, and its own numbers."""
        inner = self._inner
        prefix = f"optimizer_state/{self._names.prefix}"
        yield f"{prefix}lr", inner.learning_rate
        yield f"{prefix}iteration", inner._iterations
        if self._optimizer is not inner and self._optimizer.built:
            yield f"{prefix}loss_scale", self._optimizer.dynamic_scale
        owners = inner._trainable_variables
        for attribute, slots in vars(inner).items() if inner.built else ():
            if not isinstance(slots, list) or len(slots) != len(owners) or slots is owners:
                continue
            for owner, slot in zip(owners, slots, strict=True):
                path = self._paths.find(owner)
                if path is not None and isinstance(slot, keras.Variable) and slot is not owner:
                    yield f"optimizer_state/{path}.{_slot(attribute, owner, slot)}", slot


class _Paths:
    """Finds the paths of variables, of Keras's and of those of the backend inside of them."""

    def __init__(self, named: list[NamedVariable]) -> None:
        self._paths = {id(one.value): one.path for one in named}
        self._paths |= {id(one.value._value): one.path for one in named}

    def find(self, variable: Any) -> str | None:
        found = self._paths.get(id(variable))
        return self._paths.get(id(getattr(variable, "_value", None))) if found is None else found


def _slot(attribute: str, owner: Any, slot: Any) -> str:
    """Return the name of what an optimizer keeps of a variable, such as "momentum"."""
    before = f"{getattr(owner, 'path', owner.name).replace('/', '_')}_"
    name = str(slot.name)
    return name.removeprefix(before) if name.startswith(before) else attribute.strip("_")


def _number(variable: Any) -> int:
    return int(variable.value)
