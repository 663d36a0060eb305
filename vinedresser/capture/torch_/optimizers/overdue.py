"""Detecting that the optimizer that ends steps takes none while others do."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.torch_.optimizers.optimizer_steps import updated

__all__ = ["Overdue", "described"]

# Maximum number of steps of another optimizer meanwhile. The critic of the original Wasserstein GAN
# takes 100 steps per generator step.
_PATIENCE = 200


A = TypeVar("A")


class Overdue(Generic[A]):
    """Counts the steps of other optimizers since the last step of the one that ends steps.

    The type parameter is the adapter's.

    Attributes:
        others: class names of the other optimizers.
    """

    def __init__(self) -> None:
        self.others: set[str] = set()
        self._counts: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._latest: tuple[weakref.ref[Optimizer], A] | None = None

    def ended(self) -> None:
        """Note the end of a step."""
        if self._latest is not None:
            self.others.clear()
            self._counts.clear()
            self._latest = None

    def stepped(self, optimizer: Optimizer, adapter: A) -> tuple[Optimizer, A] | None:
        """Note the step of another optimizer.

        Args:
            optimizer: the other optimizer.
            adapter: adapter of its model.

        Returns:
            The optimizer that should end steps instead (the last one of a round), and the adapter
            of its model; None while waiting is worthwhile.
        """
        self.others.add(type(optimizer).__name__)
        count = self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        before, self._latest = self._latest, (weakref.ref(optimizer), adapter)
        if count <= _PATIENCE:
            return None
        latest = None if before is None else before[0]()
        return (optimizer, adapter) if before is None or latest is None else (latest, before[1])


def described(optimizer: Optimizer, model: nn.Module) -> str:
    """Return class and first parameter of an optimizer, such as ``Adam (of conv1.weight)``."""
    updates = updated([optimizer])
    named = model.named_parameters()
    of = next((name for name, one in named if id(one) in updates), "nothing of the model")
    return f"{type(optimizer).__name__} (of {of})"
