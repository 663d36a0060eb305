"""Counting the steps of a torch optimizer's learning-rate schedulers."""

from __future__ import annotations

import gc
import weakref

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

__all__ = ["Schedulers"]

# The key that schedulers add to an optimizer's parameter groups.
_MARK = "initial_lr"


class Schedulers:
    """The schedulers of optimizers, searched for once per optimizer that has one."""

    def __init__(self) -> None:
        # Weak, so as not to keep them alive.
        self._found: weakref.WeakKeyDictionary[Optimizer, list[weakref.ref[LRScheduler]]] = (
            weakref.WeakKeyDictionary()
        )

    def steps(self, optimizer: Optimizer) -> int | None:
        """Return the maximum number of steps of an optimizer's schedulers.

        Returns:
            The number of steps; None if there is no scheduler, or only such as
            `ReduceLROnPlateau`, which watch a metric and may never change the rate.
        """
        if not any(_MARK in group for group in optimizer.param_groups):
            return None
        if optimizer not in self._found:
            self._found[optimizer] = [weakref.ref(one) for one in _schedulers(optimizer)]
        alive = [one for one in (found() for found in self._found[optimizer]) if one is not None]
        # Schedulers step once in their constructor; composed ones have no counter.
        taken = [int(getattr(one, "_step_count", 1)) - 1 for one in alive]
        return max(taken, default=None)


def _schedulers(optimizer: Optimizer) -> list[LRScheduler]:
    """Return the schedulers that refer to an optimizer, without calling user code."""
    return [
        one
        for one in gc.get_objects()
        if issubclass(type(one), LRScheduler) and vars(one).get("optimizer") is optimizer
    ]
