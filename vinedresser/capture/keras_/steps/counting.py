"""How many optimizer steps a batch made."""

from __future__ import annotations

from typing import Any

import keras

from vinedresser.capture.keras_.steps.updates import updates_made

__all__ = ["StepCount"]

# That of the backend in use.
_TRAIN_STEP = next(vars(c)["train_step"] for c in keras.Model.__mro__ if "train_step" in vars(c))


class StepCount:
    """Counts the updates of the optimizer that counts.

    Args:
        model: the model.
        optimizer: the one that counts; None: the first that is seen to update the model.

    Attributes:
        optimizer: the one that counts; None as long as none is known.
    """

    def __init__(self, model: Any, optimizer: Any) -> None:
        self._model = model
        self._told = optimizer is not None
        self.optimizer = optimizer

    def saw(self, optimizer: Any) -> bool:
        """Note that an optimizer updates the model; say whether it is the one that counts."""
        if self.optimizer is None:
            self.optimizer = optimizer
        return optimizer is self.optimizer

    def forget(self) -> None:
        """Forget an optimizer that nobody told us of: the model was compiled with another one."""
        if not self._told:
            self.optimizer = None

    def before(self) -> tuple[Any, int] | None:
        """Return what `after` is to be told; None where one batch is one step."""
        optimizer = self.optimizer
        # Until it is seen to update the model, Keras's own step uses that of the model.
        if optimizer is None and not self._custom:
            optimizer = getattr(self._model, "optimizer", None)
        if not isinstance(optimizer, keras.optimizers.Optimizer) or not self._irregular(optimizer):
            return None
        return optimizer, updates_made(optimizer)

    def after(self, before: tuple[Any, int] | None) -> int:
        """Return how many steps there were since `before`."""
        return 1 if before is None else max(updates_made(before[0]) - before[1], 0)

    @property
    def skips(self) -> bool:
        """Whether a batch that makes no step is one that is skipped: its gradients overflowed."""
        optimizer = self.optimizer or getattr(self._model, "optimizer", None)
        scaled = False
        while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            scaled = True
            optimizer = optimizer.inner_optimizer
        return scaled and not getattr(optimizer, "gradient_accumulation_steps", None)

    @property
    def _custom(self) -> bool:
        """Whether the step is one of the user's own."""
        step = getattr(self._model.train_step, "__func__", None)
        return step is not _TRAIN_STEP

    def _irregular(self, optimizer: Any) -> bool:
        """Say whether a batch may make no step, or several; to ask the optimizer takes time."""
        return bool(
            isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
            or optimizer.gradient_accumulation_steps
            or self._model.steps_per_execution > 1
            or self._custom
        )
