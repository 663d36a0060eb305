"""What has been seen of one model in a step or an evaluation."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from torch.optim import Optimizer

from vinedresser.capture.recording import Recording

__all__ = ["Progress", "ProgressOf"]


@dataclass(eq=False)
class Progress:
    """How far a model is in a recording.

    Attributes:
        forwards: how often it was called; with a closure, since the optimizer's step began.
        stepped: the optimizers that have begun a step.
    """

    forwards: int = 0
    stepped: weakref.WeakSet[Optimizer] = field(default_factory=weakref.WeakSet)

    @property
    def first_batch(self) -> bool:
        """Whether tensors of a forward are still taken: they are those of the first one."""
        return self.forwards <= 1


class ProgressOf:
    """The progress of one model in each of the recordings that are open."""

    def __init__(self) -> None:
        self._found: weakref.WeakKeyDictionary[Recording, Progress] = weakref.WeakKeyDictionary()

    def __call__(self, recording: Recording) -> Progress:
        """Return the progress in a recording."""
        return self._found.setdefault(recording, Progress())
