"""Noticing that the optimizer with which steps end takes none, while others do."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from torch.optim import Optimizer

__all__ = ["Overdue"]

# Steps that another optimizer takes meanwhile, at the most. Of the trainings that let one wait for
# long on purpose, that of the first Wasserstein GAN has its critic take 100 steps to one.
_PATIENCE = 200


A = TypeVar("A")


class Overdue(Generic[A]):
    """How many steps other optimizers have taken since one that ends a step has taken its last.

    Type parameter: of what watches an optimizer's model.

    Attributes:
        others: the classes of those that have.
    """

    def __init__(self) -> None:
        self.others: set[str] = set()
        self._counts: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._latest: tuple[weakref.ref[Optimizer], A] | None = None

    def ended(self) -> None:
        """Take note that a step has ended."""
        if self._latest is not None:
            self.others.clear()
            self._counts.clear()
            self._latest = None

    def stepped(self, optimizer: Optimizer, adapter: A) -> tuple[Optimizer, A] | None:
        """Take note of another's step.

        Args:
            optimizer: the other.
            adapter: watches the model that it updates.

        Returns:
            The one with which steps should end instead, the last of the others to step in their
            turns, and its model's adapter; None as long as it is worth waiting.
        """
        self.others.add(type(optimizer).__name__)
        count = self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        before, self._latest = self._latest, (weakref.ref(optimizer), adapter)
        if count <= _PATIENCE:
            return None
        latest = None if before is None else before[0]()
        return (optimizer, adapter) if before is None or latest is None else (latest, before[1])
