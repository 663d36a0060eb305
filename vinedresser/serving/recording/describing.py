"""Describing requests on the worker's thread, without keeping the interpreter from the service."""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import Event
from typing import Any, NamedTuple

from numpy.typing import NDArray

from vinedresser.serving.columns.describing import describe
from vinedresser.serving.recording.faults import Faults
from vinedresser.serving.recording.items import Batch, Item, batches, host_item
from vinedresser.serving.recording.settings import Settings

__all__ = ["Described", "Describer", "Throttle"]

# Processor time after which the worker rests: as long as a service may wait for the interpreter.
_SLICE = 1e-4
_LONGEST_REST = 0.05
# Bytes of requests that are described as soon as they are there: several images, or thousands of
# rows, which are otherwise described together before each write.
_MANY = 2 << 20


class Described(NamedTuple):
    """Requests and the columns that describe them."""

    batch: Batch
    columns: dict[str, NDArray[Any]]


class Throttle:
    """Spreads work over time, so that any request meets little of it.

    A thread of Python keeps the interpreter for up to 5 ms unless it rests, and a model gives the
    interpreter away and needs it again many times.

    Args:
        share: share of the time to work.
        hurry: no rests while it is set.
    """

    def __init__(self, share: float, hurry: Event) -> None:
        self._rest = 1.0 / share - 1.0
        self._hurry = hurry
        self._worked = 0.0

    def begin(self) -> None:
        """Begin to work."""
        self._worked = time.thread_time()

    def rest(self) -> None:
        """Rest if it is time to."""
        worked = time.thread_time() - self._worked
        if worked >= _SLICE:
            self._hurry.wait(min(worked * self._rest, _LONGEST_REST))
            self.begin()


class Describer:
    """Describes the requests of calls in batches.

    Args:
        settings: how to describe them.
        throttle: spreads the work.
        faults: reports problems.

    Attributes:
        lost: number of requests that could not be described.
    """

    def __init__(self, settings: Settings, throttle: Throttle, faults: Faults) -> None:
        self.lost = 0
        self._settings = settings
        self._throttle = throttle
        self._read = faults.guard("reading a request", host_item)
        self._columns = faults.guard("describing requests", self._columns_of)
        self._items: list[Item] = []
        self._waiting = 0
        self._described: list[Described] = []
        self._bytes = 0

    def add(self, items: Iterable[Item]) -> None:
        """Take calls, and describe some if there are many."""
        self._throttle.begin()
        for item in items:
            self._bytes += item.size
            self._waiting += item.size
            self._items.append(item)
            if self._waiting >= _MANY:
                self._describe()

    def take(self) -> tuple[list[Described], int]:
        """Return all requests taken so far, described, and the size of their calls in bytes."""
        self._throttle.begin()
        self._describe()
        described, self._described = self._described, []
        size, self._bytes = self._bytes, 0
        return described, size

    def _describe(self) -> None:
        items, self._items = self._items, []
        self._waiting = 0
        read = [(item, self._read(item)) for item in items]
        self.lost += sum(len(item.ids) for item, plain in read if plain is None)
        for batch in batches(plain for _, plain in read if plain is not None):
            columns = self._columns(batch)
            if columns is None:
                self.lost += len(batch.ids)
            else:
                self._described.append(Described(batch, columns))
            self._throttle.rest()

    def _columns_of(self, batch: Batch) -> dict[str, NDArray[Any]]:
        settings = self._settings
        return describe(
            batch.inputs,
            batch.outputs,
            settings.features,
            batch.embedding,
            classify=settings.classify,
        )
