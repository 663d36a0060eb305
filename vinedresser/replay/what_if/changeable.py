"""A training that can be changed for a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from vinedresser.replay.batch import Batch


class Changeable:
    """What the changes of trials act on.

    Args:
        model: the model that is trained.

    Attributes:
        clears: whether gradients are cleared before each step, whatever the step does.
        prepare: changes a batch before it is used.
        before_update: called with the gradients of each update.
    """

    def __init__(self, model: nn.Module, optimizers: list[Optimizer]) -> None:
        self.model = model
        self.optimizers = optimizers
        self.clears = False
        self.prepare: Callable[[Batch], Batch] = _same
        self.before_update: list[Callable[[list[Tensor]], object]] = []

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers; restoring the state makes new ones."""
        return [group for each in self.optimizers for group in each.param_groups]


def _same(batch: Batch) -> Batch:
    return batch
