"""The bounded queue between the threads that serve requests and the worker."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from vinedresser.serving.recording.items import Item

__all__ = ["Counts", "Inbox"]


class Counts(NamedTuple):
    """What happened since a recorder began in this process.

    Attributes:
        seen: number of requests, recorded or not.
        refused: number of chosen requests that found the queue full.
        failed: number of requests that could not be copied.
        busy: seconds of processor time that recording took in the callers' threads, an estimate.
    """

    seen: int
    refused: int
    failed: int
    busy: float


class Inbox:
    """A queue that never makes a caller wait for the worker.

    Args:
        most_bytes: bytes of waiting items, above which new ones are refused.
    """

    def __init__(self, most_bytes: int) -> None:
        self.wake = threading.Event()
        self._most_bytes = most_bytes
        self._items: deque[Item] = deque()
        # Among callers only: the worker, which may lose the interpreter at any point, never has it.
        self._lock = threading.Lock()
        self._put_bytes = 0
        self._taken_bytes = 0
        self._seen = 0
        self._refused = self._failed = 0
        self._busy = 0.0

    @property
    def counts(self) -> Counts:
        """What happened so far."""
        return Counts(self._seen, self._refused, self._failed, self._busy)

    def count(self, seen: int) -> None:
        """Count requests, recorded or not."""
        with self._lock:
            self._seen += seen

    def fail(self, requests: int) -> None:
        """Count requests that could not be copied."""
        with self._lock:
            self._failed += requests

    def count_busy(self, seconds: float) -> None:
        """Count processor time of a caller's thread."""
        with self._lock:
            self._busy += seconds

    def put(self, item: Item) -> bool:
        """Add an item, measured; return False if there is no room for it."""
        with self._lock:
            waiting = self._put_bytes - self._taken_bytes
            if waiting and waiting + item.size > self._most_bytes:
                self._refused += len(item.ids)
                return False
            self._put_bytes += item.size
            self._items.append(item)
        return True

    def take(self) -> list[Item]:
        """Return all waiting items."""
        items = []
        while self._items:
            items.append(self._items.popleft())
        return items

    def settle(self, items: list[Item]) -> None:
        """Count taken items as no longer in memory."""
        self._taken_bytes += sum(item.size for item in items)
