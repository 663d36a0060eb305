"""The bounded queue between the training thread and the writer thread."""

from __future__ import annotations

import threading
from typing import Literal, NamedTuple

from vinedresser.store.step_record import ScalarStep, StepRecord

__all__ = ["Queued", "QueuePolicy", "RecordQueue"]

QueuePolicy = Literal["block", "drop"]

# Approximate memory of a number with its name, and of an empty record.
_BYTES_PER_NUMBER = 64
# More bytes than ever wait.
_NEVER = 1 << 62


class Queued(NamedTuple):
    """A queued record and its size in bytes."""

    record: StepRecord | ScalarStep
    size: int


class RecordQueue:
    """Passes records from the training thread to the writer thread, bounded in bytes.

    A record counts from `put` until `settle`, so that the limit covers all memory kept alive,
    including records that the writer has already taken.

    Args:
        limit: maximum bytes in flight; a larger record is accepted when nothing else is in flight.
        policy: whether `put` waits for space ("block") or refuses the record ("drop").

    Attributes:
        refused: number of refused records.
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
        """Whether all further records are refused."""
        return self._ended

    @property
    def hurry(self) -> bool:
        """Whether a thread waits for records to be settled."""
        return self._blocked > 0 or any(target > self._settled for target in self._targets)

    def put(self, record: StepRecord | ScalarStep) -> bool:
        """Add a record; return False if it was refused."""
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
                # Notify once until the writer takes the records.
                self._wake_bytes = _NEVER
                self._work.notify()
        return True

    def take(self, timeout: float, wake_bytes: int) -> list[Queued]:
        """Wait for records and return all that are queued.

        Args:
            timeout: seconds after which to return in any case.
            wake_bytes: return as soon as this many bytes are queued, or if there is a hurry.
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
            # Only if needed: a thread woken for nothing takes the interpreter from the writer.
            if self._blocked or any(target <= self._settled for target in self._targets):
                self._room.notify_all()

    def flush(self, timeout: float | None) -> bool:
        """Wait until all records put so far are settled; return False on timeout.

        Args:
            timeout: maximum seconds to wait; None: unlimited.
        """
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
        """Refuse all further records, and wake all waiting threads."""
        with self._room:
            self._ended = True
            self._room.notify_all()
            self._work.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._in_flight or self._in_flight + size <= self._limit

    def _makes_room(self, size: int) -> bool:
        """Return whether there is space, waiting for it if the policy is "block"."""
        if self._policy == "block" and not self._fits(size) and not self._ended:
            self._blocked += 1
            try:
                self._work.notify()
                self._room.wait_for(lambda: self._ended or self._fits(size))
            finally:
                self._blocked -= 1
        return self._fits(size) and not self._ended


def _size(record: StepRecord | ScalarStep) -> int:
    """Return the size of a record in bytes."""
    if isinstance(record, ScalarStep):
        return _BYTES_PER_NUMBER * (1 + len(record.scalars))
    numbers = 1 + len(record.scalars) + len(record.reductions)
    return record.nbytes() + _BYTES_PER_NUMBER * numbers
