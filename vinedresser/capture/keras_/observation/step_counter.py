"""Counting of the optimizer steps in a batch."""

from __future__ import annotations

from typing import Any

import keras

from vinedresser.capture.keras_.observation.optimizer_update import updates_made

__all__ = ["StepCounter"]

# The train_step of the backend in use.
_TRAIN_STEP = next(vars(c)["train_step"] for c in keras.Model.__mro__ if "train_step" in vars(c))


class StepCounter:
    """Counts the steps of the leading optimizer.

    Args:
        model: the model.
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
        scaled = False
        while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            scaled = True
            optimizer = optimizer.inner_optimizer
        return scaled and not getattr(optimizer, "gradient_accumulation_steps", None)

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
