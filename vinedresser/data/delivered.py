"""The batches that the data sets of this process have delivered, for who watches its training.

A data set knows what it has delivered, but not what becomes of it; a hook sees the calls of a
model, but not where their inputs come from. `BatchInUse` joins the two, and only as far as it is
certain.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple
from weakref import WeakSet

from vinedresser.data.fed import Fed
from vinedresser.data.records import Batch, Origins
from vinedresser.errors import ConfigError

__all__ = ["BatchInUse", "Iteration", "Provider", "fed_data_sets", "stage_seconds"]

# Batches that are remembered: a training that draws more between two forwards is ahead anyway.
_REMEMBERED = 8
# Data sets that are remembered, for scripts that make a new one for each evaluation.
_DATA_SETS = 16


class Provider:
    """Marks what a DataLoader loads if its batches are noted here once they are delivered."""


class Iteration:
    """An iteration over a data set; a context, which ends with the iteration.

    Args:
        fed: what the data set has fed, which is kept up to date.
    """

    def __init__(self, fed: Fed) -> None:
        self._open = True
        self._fed = fed
        fed.iterations += 1
        self._number = fed.running = fed.iterations
        if fed not in _DELIVERED.data_sets:
            _DELIVERED.data_sets.append(fed)

    def __enter__(self) -> Iteration:
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False

    @property
    def open(self) -> bool:
        """Whether it may deliver further batches."""
        return self._open

    @property
    def latest(self) -> bool:
        """Whether it moves the position: no other iteration has begun, and none was loaded."""
        return self._number == self._fed.running

    def draw(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches as long as this is the latest iteration.

        Raises:
            ConfigError: another one has begun, and moves the position, or a position was loaded.
        """
        while True:
            self._check()
            batch = next(batches, None)
            # Another thread may have begun one meanwhile.
            self._check()
            if batch is None:
                return
            yield batch

    def _check(self) -> None:
        if self._fed.running is None:
            raise ConfigError(
                "load_state_dict has moved the position of this data set; begin anew with iter()"
            )
        if not self.latest:
            raise ConfigError(
                "another iteration of this data set has begun and continued from its position; "
                "iterate over a second data set, or begin anew with iter()"
            )

    def deliver(self, origins: Origins) -> None:
        """Note the origins of a batch that is about to be delivered."""
        self._fed.add(origins)
        _DELIVERED.latest.append(_Delivery(self, origins, threading.get_ident()))
        _DELIVERED.count += 1


class _Delivery(NamedTuple):
    iteration: Iteration
    origins: Origins
    thread: int


class _Delivered:
    """The latest batches of this process, and the number of all."""

    def __init__(self) -> None:
        self.count = 0
        self.latest: deque[_Delivery] = deque(maxlen=_REMEMBERED)
        self.data_sets: deque[Fed] = deque(maxlen=_DATA_SETS)


_DELIVERED = _Delivered()


def fed_data_sets() -> list[Fed]:
    """Return what the latest data sets of this process have fed."""
    return [*_DELIVERED.data_sets]


def stage_seconds() -> tuple[float, ...]:
    """Return what they cost so far by stage, in seconds, see `Statistics.stages`; () if none."""
    if not _DELIVERED.count:
        return ()
    sets = _DELIVERED.data_sets
    if len(sets) == 1:
        return sets[0].statistics.stages
    return tuple(map(sum, zip(*(one.statistics.stages for one in sets), strict=True)))


class BatchInUse:
    """The batch that a watched training uses in its current forward.

    It is known if exactly one batch was delivered since the previous forward. A loop that reads
    ahead, or skips batches, takes several: which of them it uses is unknown, and remains so for the
    rest of these iterations; a thread that delivers batches to another one may read ahead at any
    time. A batch of an iteration that was broken off does not count beside one of an iteration that
    lasts: the script has looked at it before. A second forward without another batch may use the
    same one, or other data.

    Attributes:
        origins: the origins of its records; None if it is not a batch of a data set, or not known
            which one.
    """

    def __init__(self) -> None:
        self.origins: Origins | None = None
        self._seen = _DELIVERED.count
        self._unclear: WeakSet[Iteration] = WeakSet()
        self._ahead = 0

    def forward_begins(self) -> None:
        """Note the start of a forward: find out which batch it uses."""
        number = _DELIVERED.count - self._seen
        if not number:
            self.origins = None
            return
        self._seen += number
        latest = [*_DELIVERED.latest][-number:]
        lasting = [one for one in latest if one.iteration.open]
        candidates = lasting if number <= _REMEMBERED and lasting else latest
        if len(candidates) > 1 or number > _REMEMBERED:
            self._unclear.update(one.iteration for one in latest)
        last = candidates[-1]
        known = last.iteration not in self._unclear and last.thread == threading.get_ident()
        self.origins = last.origins if known else None

    def steps_ran(self, batches: int = 1) -> None:
        """Note steps that have drawn their batches themselves, each its own, as those of Keras do.

        A pipeline that reads ahead may deliver batches at any time, in its order: the latest one is
        that of the last step if as many were delivered as used.

        Args:
            batches: number of steps.
        """
        number = _DELIVERED.count - self._seen
        self._seen += number
        self._ahead = max(self._ahead + number - batches, 0)
        known = number and not self._ahead
        self.origins = _DELIVERED.latest[-1].origins if known else None

    def of_running_step(self) -> Origins | None:
        """Return what `steps_ran` will find for the step that runs now, and has its batch."""
        alone = _DELIVERED.count - self._seen == 1 and not self._ahead
        return _DELIVERED.latest[-1].origins if alone else None

    def forget(self) -> None:
        """Note that the next forward may use other data than what was delivered so far."""
        self._seen = _DELIVERED.count
