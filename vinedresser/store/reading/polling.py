"""How often readers poll for new data."""

from __future__ import annotations

import time

from vinedresser.store.storage import Storage
from vinedresser.store.storage.location import is_remote

# Seconds between polls while nothing is new: in a directory; and on an object store, where each
# poll costs a round trip and money, the first and the longest pause.
_LOCAL = 0.02
_REMOTE, _LONGEST = 0.25, 2.0
# The same for urgent readers.
_URGENT, _LONGEST_URGENT = 0.05, 0.25
# Seconds between checks for live processes.
_LIFE, _LIFE_REMOTE = 0.25, 1.0


class Polling:
    """The pauses of a waiting reader; they double up to a limit while nothing is new.

    Args:
        storage: the run's storage.
        poll: seconds of every pause; None: 0.02 for a directory; on an object store 0.25, doubling
            up to 2, and if urgent 0.05, doubling up to 0.25.
        urgent: the writer was asked to commit every step immediately.

    Attributes:
        life: seconds between checks for live processes.
    """

    def __init__(self, storage: Storage, poll: float | None, *, urgent: bool) -> None:
        remote = is_remote(storage.location)
        self.life = _LIFE_REMOTE if remote else _LIFE
        if poll is not None or not remote:
            self._first = self._longest = _LOCAL if poll is None else poll
        elif urgent:
            self._first, self._longest = _URGENT, _LONGEST_URGENT
        else:
            self._first, self._longest = _REMOTE, _LONGEST
        self._next = self._first

    def wait(self) -> None:
        """Wait, because nothing was new."""
        time.sleep(self._next)
        self._next = min(2 * self._next, self._longest)

    def came(self) -> None:
        """Return to the shortest pause, because something was new."""
        self._next = self._first
