"""The random choices of one training."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from corpus.watching import Watch

__all__ = ["Draw"]

T = TypeVar("T")


class Draw:
    """Choices of a training, equal for a healthy training and its faulty twin.

    Attributes:
        about: classes of the faults that separate the twins, one or two. The choices may depend on
            them, so that the training can carry the faults.
        faulty: whether this training has the faults.
        random: source of the choices; both twins must draw the same values from it.
        amount: source of the extent of the faults.
        numpy: source of data.
        watch: how the training is captured.
        epoch: batches until all training rows have been used; 0 if rows are drawn at random.
        accumulated: batches of an optimizer step.
    """

    def __init__(self, seed: int, about: Sequence[str], watch: Watch, *, faulty: bool) -> None:
        self.about = tuple(about)
        self.faulty = faulty
        self.random = random.Random(seed)
        self.amount = random.Random(f"{seed} {'+'.join(about)}")
        self.numpy = np.random.default_rng(seed)
        self.watch = watch
        self.epoch = 0
        self.accumulated = 1

    def has(self, fault: str) -> bool:
        """Return whether this training has a fault."""
        return self.faulty and fault in self.about

    def concerns(self, *faults: str) -> bool:
        """Return whether one of these faults separates the twins, in whichever this training is."""
        return any(one in self.about for one in faults)

    def by_fault(self, table: Mapping[str, T], usual: T) -> T:
        """Return the entry of the fault that this training has; ``usual`` if there is none."""
        return self.by_subject(table, usual) if self.faulty else usual

    def by_subject(self, table: Mapping[str, T], usual: T) -> T:
        """Return the entry of the fault that separates the twins, for both of them."""
        return next((table[one] for one in self.about if one in table), usual)

    def without_fault(self) -> Draw:
        """Return the same choices for a part of the training that has no fault."""
        other = copy.copy(self)
        other.faulty = False
        return other

    def choice(self, options: Sequence[T]) -> T:
        """Return one of several options."""
        return self.random.choice(options)

    def chance(self, share: float) -> bool:
        """Return True with a probability."""
        return self.random.random() < share

    def whole(self, low: int, high: int) -> int:
        """Return an integer between two positive bounds, evenly on a logarithmic scale."""
        return round(self.between(low, high))

    def between(self, low: float, high: float) -> float:
        """Return a number between two positive bounds, evenly on a logarithmic scale."""
        return math.exp(self.random.uniform(math.log(low), math.log(high)))

    def steps(self, low: int, high: int) -> int:
        """Return the number of optimizer steps, evenly on a logarithmic scale, and announce it."""
        steps = self.whole(low, high)
        self.watch.expect(steps)
        return steps

    def extent(self, low: float, high: float) -> float:
        """Return the extent of a fault, evenly on a logarithmic scale."""
        return math.exp(self.amount.uniform(math.log(low), math.log(high)))
