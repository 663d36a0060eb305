"""Updates by optimizers: weights, gradients, optimizer state and changes, and their number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from vinedresser.capture.keras_.backends.backend import Backend
from vinedresser.capture.keras_.observation.due_filter import DueFilter, Emit
from vinedresser.frameworks.keras_.model_state import inner_optimizer
from vinedresser.frameworks.keras_.names import NamedVariable, Names

__all__ = ["OptimizerUpdate", "StepCounter", "updates_made"]

# The train_step of the backend in use.
_TRAIN_STEP = next(vars(c)["train_step"] for c in keras.Model.__mro__ if "train_step" in vars(c))


def updates_made(optimizer: Any) -> int:
    """Return the number of weight updates that an optimizer has made."""
    inner = inner_optimizer(optimizer)
    return _number(inner._iterations) // (inner.gradient_accumulation_steps or 1)


class OptimizerUpdate:
    """One call of an optimizer's ``apply``; create it before the call.

    Args:
        names: names of a watched model.
        optimizer: the optimizer whose ``apply`` is called.
        gradients: gradients passed to ``apply``, each with its variable's shape, or None.
        variables: variables of the gradients; None for all that the optimizer was built with.
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
        # Full name of each change, the variable and its value before the update.
        self._before: list[tuple[str, Any, Any]] = []

    def emit_before(self, is_due: DueFilter, emit: Emit) -> None:
        """Emit the due tensors that are known before the update.

        Args:
            is_due: returns whether the tensor of a full name is due.
            emit: receives the due tensors, of any shape and dtype.
        """
        paths = [path for path in map(self._paths.find, self._variables) if path is not None]
        if not paths:
            return
        for variable in self._named:
            if is_due(variable.name):
                emit(variable.name, self._backend.read(variable.value))
        due = {path for path in paths if is_due(f"gradients/{path}")}
        if due and self._will_update():
            for variable, gradient in self._consumed():
                path = self._paths.find(variable)
                if path in due:
                    emit(f"gradients/{path}", self._backend.dense(gradient))
        for name, value in self._state():
            if is_due(name):
                emit(name, self._backend.read(value))
        changing = {f"updates/{path}" for path in paths if is_due(f"updates/{path}")}
        if changing and self._will_update():
            snapshot = self._backend.snapshot
            named = ((f"updates/{one.path}", one.value) for one in self._named)
            self._before = [(name, one, snapshot(one)) for name, one in named if name in changing]

    def emit_changes(self, emit: Emit) -> None:
        """Emit the changes of the weights, new minus old, that were due in `emit_before`."""
        for name, variable, before in self._before:
            emit(name, self._backend.snapshot(variable) - before)
        self._before.clear()

    def _will_update(self) -> bool:
        """Return whether weights will be updated; True during tracing, where it is unknown."""
        if self._backend.tracing():
            return True
        steps = self._inner.gradient_accumulation_steps
        if steps and (_number(self._inner._iterations) + 1) % steps:
            return False
        if self._optimizer is self._inner:
            return True
        given = [
            self._backend.dense(gradient) for gradient in self._gradients if gradient is not None
        ]
        return bool(self._optimizer.check_finite(given))

    def _consumed(self) -> list[tuple[Any, Any]]:
        """Return the variables with their effective gradients.

        The gradients are unscaled, accumulated and clipped, in the order of `BaseOptimizer.apply`.
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
            slots = [inner._get_variable_index(one) for one in variables] if sums else []
            before = [sums[place] for place in slots] if sums else [0.0] * len(variables)
            gradients = [(one + sum_) / steps for one, sum_ in zip(gradients, before, strict=True)]
        clipped = inner._clip_gradients(gradients) if gradients else []
        return list(zip(variables, clipped, strict=True))

    def _state(self) -> Iterator[tuple[str, Any]]:
        """Yield the optimizer's scalars and the slots of each variable, by full name."""
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
    """Paths by Keras variable or by the backend variable inside it."""

    def __init__(self, named: list[NamedVariable]) -> None:
        self._paths = {id(one.value): one.path for one in named}
        self._paths |= {id(getattr(one.value, "_value", one.value)): one.path for one in named}

    def find(self, variable: Any) -> str | None:
        found = self._paths.get(id(variable))
        return self._paths.get(id(getattr(variable, "_value", None))) if found is None else found


def _slot(attribute: str, owner: Any, slot: Any) -> str:
    """Return the name of an optimizer slot, such as "momentum"."""
    before = f"{getattr(owner, 'path', owner.name).replace('/', '_')}_"
    name = str(slot.name)
    return name.removeprefix(before) if name.startswith(before) else attribute.strip("_")


def _number(variable: Any) -> int:
    return int(variable.value)


class StepCounter:
    """Counts the steps of the leading optimizer.

    Args:
        optimizer: the leading optimizer; None for the first that updates the model.

    Attributes:
        optimizer: the leading optimizer; None until it is known.
    """

    def __init__(self, model: Any, optimizer: Any) -> None:
        self._model = model
        self._given = optimizer is not None
        self.optimizer = optimizer

    def register(self, optimizer: Any) -> bool:
        """Register an optimizer that updates the model; return whether it is the leading one."""
        if self.optimizer is None:
            self.optimizer = optimizer
        return optimizer is self.optimizer

    def forget(self) -> None:
        """Forget a leading optimizer that was not given, since the model was compiled again."""
        if not self._given:
            self.optimizer = None

    def before(self) -> tuple[Any, int] | None:
        """Return the state to pass to `after`; None if one batch is always one step."""
        optimizer = self.optimizer
        # Before its first update, the step of Keras uses the model's own optimizer.
        if optimizer is None and not self._custom:
            optimizer = getattr(self._model, "optimizer", None)
        if not isinstance(optimizer, keras.optimizers.Optimizer) or not self._irregular(optimizer):
            return None
        return optimizer, updates_made(optimizer)

    def after(self, before: tuple[Any, int] | None) -> int:
        """Return the number of steps since `before`."""
        return 1 if before is None else max(updates_made(before[0]) - before[1], 0)

    @property
    def skips(self) -> bool:
        """Whether a batch without a step was skipped because its gradients overflowed."""
        optimizer = self.optimizer or getattr(self._model, "optimizer", None)
        inner = inner_optimizer(optimizer)
        return inner is not optimizer and not inner.gradient_accumulation_steps

    @property
    def _custom(self) -> bool:
        """Whether the model overrides train_step."""
        step = getattr(self._model.train_step, "__func__", None)
        return step is not _TRAIN_STEP

    def _irregular(self, optimizer: Any) -> bool:
        """Return whether a batch may make no step or several; reading the count is slow."""
        return bool(
            isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
            or optimizer.gradient_accumulation_steps
            or self._model.steps_per_execution > 1
            or self._custom
        )
