"""How often the learning-rate schedulers of a torch optimizer were stepped."""

from __future__ import annotations

import gc
import weakref

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

__all__ = ["Schedulers"]

# What a scheduler leaves in the parameter groups when it is made; an optimizer does not know it.
_MARK = "initial_lr"


class Schedulers:
    """The schedulers of optimizers; each optimizer is searched for once, and only if it has one."""

    def __init__(self) -> None:
        # None is kept alive by us.
        self._found: weakref.WeakKeyDictionary[Optimizer, list[weakref.ref[LRScheduler]]] = (
            weakref.WeakKeyDictionary()
        )

    def steps(self, optimizer: Optimizer) -> int | None:
        """Return how often the schedulers of an optimizer were stepped, the most of several.

        Args:
            optimizer: any.

        Returns:
            The number of steps since it was made; None where there is none (any more), or only one
            of those that watch a metric (`ReduceLROnPlateau`), which may never have to do anything.
        """
        if not any(_MARK in group for group in optimizer.param_groups):
            return None
        if optimizer not in self._found:
            self._found[optimizer] = [weakref.ref(one) for one in _schedulers(optimizer)]
        alive = [one for one in (found() for found in self._found[optimizer]) if one is not None]
        # One is taken when it is made; those that are made of others take none themselves.
        taken = [int(getattr(one, "_step_count", 1)) - 1 for one in alive]
        return max(taken, default=None)


def _schedulers(optimizer: Optimizer) -> list[LRScheduler]:
    """Return what refers to an optimizer as its scheduler; nothing of the user's is called."""
    return [
        one
        for one in gc.get_objects()
        if issubclass(type(one), LRScheduler) and vars(one).get("optimizer") is optimizer
    ]
