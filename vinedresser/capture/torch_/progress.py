"""What has been seen of one model in a step or an evaluation."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from torch.optim import Optimizer

from vinedresser.capture.recording.recording import Recording

__all__ = ["Progress", "ProgressOf"]


@dataclass(eq=False)
class Progress:
    """How far a model is in a recording.

    Attributes:
        forwards: how often it was called; with a closure, since the optimizer's step began.
    """

    forwards: int = 0
    # None is kept alive by us.
    _stepped: list[weakref.ref[Optimizer]] = field(default_factory=list)

    @property
    def first_batch(self) -> bool:
        """Whether tensors of a forward are still taken: they are those of the first one."""
        return self.forwards <= 1

    @property
    def stepped(self) -> list[Optimizer]:
        """The optimizers that have begun a step."""
        found = (one() for one in self._stepped)
        return [one for one in found if one is not None]

    def begins_step(self, optimizer: Optimizer) -> bool:
        """See an optimizer begin a step; return whether it is its first one."""
        if any(one() is optimizer for one in self._stepped):
            return False
        self._stepped.append(weakref.ref(optimizer))
        return True


class ProgressOf:
    """The progress of one model in each of the recordings that are open, and in a plain step."""

    def __init__(self) -> None:
        # The latest plain step in which a forward was seen, and how many.
        self._plain = -1
        self._forwards = 0

    def saw_plain_forward(self, step: int) -> int:
        """See a forward in a plain step (`PlainStep`); return how many of it that makes."""
        self._forwards = 1 + self.plain_forwards(step)
        self._plain = step
        return self._forwards

    def plain_forwards(self, step: int) -> int:
        """Return how many forwards were seen in a train step as long as that was plain."""
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
