"""The bounded queue between the training and the thread that writes."""

from __future__ import annotations

import threading
from typing import Literal, NamedTuple

from vinedresser.store.step_record import ScalarStep, StepRecord

__all__ = ["Queued", "QueuePolicy", "RecordQueue"]

QueuePolicy = Literal["block", "drop"]

# About what a number with its name takes in memory, and what a record takes by itself.
_BYTES_PER_NUMBER = 64
# More than ever wait.
_NEVER = 1 << 62


class Queued(NamedTuple):
    """A record on its way, and the bytes that it is counted as."""

    record: StepRecord | ScalarStep
    size: int


class RecordQueue:
    """Hands records from the training's thread to the writer's, bounded in bytes.

    A record counts from `put` until `settle`, so that the bound holds for all memory that is kept
    alive, wherever the record is.

    Args:
        limit: most bytes in flight; a record that is larger by itself passes alone.
        policy: whether `put` waits for room or refuses.

    Attributes:
        refused: records that were not taken.
    """

    def __init__(self, limit: int, policy: QueuePolicy) -> None:
        self.refused = 0
        self._limit = limit
        self._policy = policy
        self._waiting: list[Queued] = []
        self._waiting_bytes = 0
        self._wake_bytes = 1
        self._in_flight = 0
        self._taken = 0
        self._settled = 0
        self._targets: list[int] = []
        self._blocked = 0
        self._ended = False
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)

    @property
    def ended(self) -> bool:
        """Whether nothing more is taken."""
        return self._ended

    @property
    def hurry(self) -> bool:
        """Whether somebody waits for records to be settled."""
        return self._blocked > 0 or any(target > self._settled for target in self._targets)

    def put(self, record: StepRecord | ScalarStep) -> bool:
        """Take a record; return False when it was refused."""
        size = _size(record)
        with self._lock:
            full = self._in_flight + size > self._limit
            if (full or self._ended) and not self._makes_room(size):
                self.refused += 1
                return False
            self._waiting.append(Queued(record, size))
            self._waiting_bytes += size
            self._in_flight += size
            self._taken += 1
            if self._waiting_bytes >= self._wake_bytes:
                # Once is enough: until the writer looks, all that comes waits for it alike.
                self._wake_bytes = _NEVER
                self._work.notify()
        return True

    def take(self, timeout: float, wake_bytes: int) -> list[Queued]:
        """Return all records that wait, as soon as that is worth while.

        Args:
            timeout: seconds after which to return in any case.
            wake_bytes: return at once when so many have come together, or when there is a hurry.
        """
        with self._work:
            self._wake_bytes = wake_bytes
            self._work.wait_for(
                lambda: self._waiting_bytes >= wake_bytes or self.hurry or self._ended, timeout
            )
            taken, self._waiting = self._waiting, []
            self._waiting_bytes = 0
        return taken

    def settle(self, items: list[Queued]) -> None:
        """Count records as no longer in flight."""
        with self._room:
            self._in_flight -= sum(item.size for item in items)
            self._settled += len(items)
            # Not at every turn: who is woken for nothing takes the interpreter from the writer.
            if self._blocked or any(target <= self._settled for target in self._targets):
                self._room.notify_all()

    def flush(self, timeout: float | None) -> bool:
        """Wait until everything that was put before is settled; return False when out of time."""
        with self._room:
            target = self._taken
            self._targets.append(target)
            try:
                self._work.notify()
                self._room.wait_for(lambda: self._settled >= target or self._ended, timeout)
            finally:
                self._targets.remove(target)
            return self._settled >= target

    def end(self) -> None:
        """Refuse everything from now on, and wake everybody who waits."""
        with self._room:
            self._ended = True
            self._room.notify_all()
            self._work.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._in_flight or self._in_flight + size <= self._limit

    def _makes_room(self, size: int) -> bool:
        """Say whether there is room after all, perhaps after a while."""
        if self._policy == "block" and not self._fits(size) and not self._ended:
            self._blocked += 1
            try:
                self._work.notify()
                self._room.wait_for(lambda: self._ended or self._fits(size))
            finally:
                self._blocked -= 1
        return self._fits(size) and not self._ended


def _size(record: StepRecord | ScalarStep) -> int:
    """Return as how many bytes a record counts."""
    if isinstance(record, ScalarStep):
        return _BYTES_PER_NUMBER * (1 + len(record.scalars))
    numbers = 1 + len(record.scalars) + len(record.reductions)
    return record.nbytes() + _BYTES_PER_NUMBER * numbers
