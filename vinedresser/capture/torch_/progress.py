"""The progress of a model in a step or evaluation."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from torch.optim import Optimizer

from vinedresser.capture.recording.recording import Recording

__all__ = ["Progress", "ProgressOf"]


@dataclass(eq=False)
class Progress:
    """The progress of a model in a recording.

    Attributes:
        forwards: number of calls; with a closure, since the start of the optimizer's step.
    """

    forwards: int = 0
    # Weak, so as not to keep optimizers alive.
    _stepped: list[weakref.ref[Optimizer]] = field(default_factory=list)

    @property
    def first_batch(self) -> bool:
        """Whether tensors of a forward are still captured: only the first one's are."""
        return self.forwards <= 1

    @property
    def stepped(self) -> list[Optimizer]:
        """The optimizers that have begun a step."""
        found = (one() for one in self._stepped)
        return [one for one in found if one is not None]

    def begins_step(self, optimizer: Optimizer) -> bool:
        """Note the start of an optimizer's step; return whether it is its first step."""
        if any(one() is optimizer for one in self._stepped):
            return False
        self._stepped.append(weakref.ref(optimizer))
        return True


class ProgressOf:
    """The progress of one model in each open recording and in the plain step."""

    def __init__(self) -> None:
        # The latest plain step with a forward, and its number of forwards.
        self._plain = -1
        self._forwards = 0

    def saw_plain_forward(self, step: int) -> int:
        """Count a forward in a plain step; return the number so far."""
        self._forwards = 1 + self.plain_forwards(step)
        self._plain = step
        return self._forwards

    def plain_forwards(self, step: int) -> int:
        """Return the number of forwards in a train step while it was plain."""
        return self._forwards if step == self._plain else 0

    def __call__(self, recording: Recording) -> Progress:
        """Return the progress in a recording."""
        found = recording.progress.get(self)
        if found is None:
            trains = recording.mode == "train"
            before = self.plain_forwards(recording.step) if trains else 0
            found = recording.progress[self] = Progress(before)
        assert isinstance(found, Progress)
        return found
