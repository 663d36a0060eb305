"""The learning rate schedulers of optimizers."""

from __future__ import annotations

import gc
import weakref

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop

__all__ = ["NOTED", "NotedSchedulers", "Schedulers", "schedulers_of"]

# The key that schedulers add to an optimizer's parameter groups.
_MARK = "initial_lr"


class NotedSchedulers(LoopListener):
    """The schedulers that were made since `start`.

    Composed schedulers and `ReduceLROnPlateau` are not noted: they do not count their steps.
    """

    def __init__(self) -> None:
        # By id, since a class may override comparison and hashing; None before `start`.
        self._made: dict[int, weakref.ref[LRScheduler]] | None = None
        self._counts: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Note each scheduler that is made from now on; to be called before any is made."""
        if self._made is None:
            self._made = {}
            listen_to_loop(self)

    def of(self, optimizer: Optimizer) -> list[LRScheduler]:
        """Return the noted schedulers that refer to an optimizer."""
        noted = [reference() for reference in (self._made or {}).values()]
        return [one for one in noted if one is not None and _refers(one, optimizer)]

    def scheduler_made(self, scheduler: LRScheduler) -> None:
        """See `LoopListener.scheduler_made`."""
        assert self._made is not None, "set before schedulers are noted"
        self._made = {key: one for key, one in self._made.items() if one() is not None}
        self._made[id(scheduler)] = weakref.ref(scheduler)
        optimizer = vars(scheduler).get("optimizer")
        if isinstance(optimizer, Optimizer):
            self._counts[optimizer] = self.count(optimizer) + 1

    def count(self, optimizer: Optimizer) -> int:
        """Return the number of noted schedulers that an optimizer has ever had."""
        return self._counts.get(optimizer, 0)


NOTED = NotedSchedulers()
"""The noted schedulers of this process."""


class Schedulers:
    """The schedulers of optimizers, looked for once per optimizer that has one.

    Args:
        noted: schedulers that need not be searched for.
    """

    def __init__(self, noted: NotedSchedulers = NOTED) -> None:
        self._noted = noted
        # Weak, so as not to keep them alive.
        self._found: weakref.WeakKeyDictionary[Optimizer, list[weakref.ref[LRScheduler]]] = (
            weakref.WeakKeyDictionary()
        )

    def count(self, optimizer: Optimizer) -> int | None:
        """Return the number of schedulers that an optimizer has ever had; None if none is noted."""
        return self._noted.count(optimizer) or None

    def steps(self, optimizer: Optimizer) -> int | None:
        """Return the maximum number of steps of an optimizer's schedulers.

        Returns:
            The number of steps; None if there is no scheduler, or only such as
            `ReduceLROnPlateau`, which watch a metric and may never change the rate.
        """
        if not any(_MARK in group for group in optimizer.param_groups):
            return None
        if optimizer not in self._found:
            # Copies of an optimizer and its schedulers are not noted.
            found = self._noted.of(optimizer) or schedulers_of(optimizer)
            self._found[optimizer] = [weakref.ref(one) for one in found]
        alive = [one for one in (found() for found in self._found[optimizer]) if one is not None]
        if not alive and (others := self._noted.of(optimizer)):
            # Another one has replaced it.
            self._found[optimizer] = [weakref.ref(other) for other in others]
            alive = others
        # Schedulers step once in their constructor; composed ones have no counter.
        taken = [int(getattr(one, "_step_count", 1)) - 1 for one in alive]
        return max(taken, default=None)


def schedulers_of(optimizer: Optimizer) -> list[LRScheduler]:
    """Return the schedulers that refer to an optimizer, without calling user code."""
    # Attributes are in a dictionary, or in the object itself. To look at all objects of the process
    # takes Python twice as long.
    holders = gc.get_referrers(optimizer)
    holders += gc.get_referrers(*(holder for holder in holders if type(holder) is dict))
    found = {id(holder): holder for holder in holders if issubclass(type(holder), LRScheduler)}
    return [one for one in found.values() if _refers(one, optimizer)]


def _refers(scheduler: LRScheduler, optimizer: Optimizer) -> bool:
    return vars(scheduler).get("optimizer") is optimizer
