"""What was seen of the first steps of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from vinedresser.preflight.loss_function import LossFunction
from vinedresser.preflight.program import Program

__all__ = ["LEAST_SAMPLES", "FirstStep", "Observed", "SeenStep"]

LEAST_SAMPLES = 8
"""Minimum number of samples that are compared with each other."""


@dataclass(frozen=True)
class SeenStep:
    """A step of the first optimizer that steps.

    Attributes:
        rates: learning rate of each group.
        batch: digest of the models' inputs.
        seconds: CPU seconds since the step before.
    """

    rates: list[float]
    batch: str
    seconds: float


@dataclass
class FirstStep:
    """The first step, which can be run again.

    Attributes:
        program: computation of its loss.
        loss: the loss, [].
        function: its function; None if it is not known.
        models: copies of the models before the step, by number.
        optimizer: copy of the optimizer before the step.
        gradients: gradients that the optimizer received, by model and name.
        closure: whether the optimizer computes them by a closure.
    """

    program: Program
    loss: Tensor
    function: LossFunction | None
    models: list[nn.Module]
    optimizer: Optimizer
    gradients: dict[tuple[int, str], Tensor] = field(default_factory=dict)
    closure: bool = False


@dataclass
class Observed:
    """A training as far as it was seen.

    Attributes:
        models: the models called, by number.
        optimizers: optimizers that have stepped.
        first: the first step; None if it cannot be run again.
        why: why it cannot.
        failed: why the training could not be watched; "" if it was.
        loaders: the data loaders that were iterated over.
        scaled: whether a gradient scaler is used.
        cut: the check ended the training, which would have continued.
        unused: number of backward passes since the latest step of an optimizer.
        moved: whether a parameter has changed without a step of an optimizer.
        samples: the only tensor given to a model, of the first calls that have one, until these are
            `LEAST_SAMPLES` rows.
    """

    steps: list[SeenStep] = field(default_factory=list)
    models: list[nn.Module] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    first: FirstStep | None = None
    why: str = "no step was seen"
    failed: str = ""
    loaders: list[DataLoader[Any]] = field(default_factory=list)
    scaled: bool = False
    cut: bool = False
    unused: int = 0
    moved: bool = False
    samples: list[Tensor] = field(default_factory=list)

    @property
    def constant_rates(self) -> bool:
        """Whether the learning rates were the same at all steps."""
        return len({tuple(step.rates) for step in self.steps}) <= 1

    @property
    def rows(self) -> int | None:
        """Number of labels of the first batch; None if they are not known."""
        function = None if self.first is None else self.first.function
        return None if function is None else len(function.compared.labels)

    def parameters(self) -> dict[tuple[int, str], Tensor]:
        """Return the parameters that an optimizer updates, by model and name."""
        updated = {
            id(value)
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for value in group["params"]
        }
        return {
            (number, name): value
            for number, model in enumerate(self.models)
            for name, value in model.named_parameters()
            if id(value) in updated and value.requires_grad
        }
