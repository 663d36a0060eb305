"""How often one looks for what is new."""

from __future__ import annotations

import time

from vinedresser.store.storage import Storage
from vinedresser.store.storage.location import is_remote

__all__ = ["Polling"]

# Seconds between two looks when there is nothing new: of a directory; and on an object store, where
# each look costs a journey and money, from the first to the longest.
_LOCAL = 0.02
_REMOTE, _LONGEST = 0.25, 2.0
# The same where the writer was asked to hurry.
_URGENT, _LONGEST_URGENT = 0.05, 0.25
# Seconds between two looks whether processes live.
_LIFE, _LIFE_REMOTE = 0.25, 1.0


class Polling:
    """The pauses of a reader that waits; they double up to a limit while nothing comes.

    Args:
        storage: where it looks.
        poll: seconds of every pause; None: 0.02 for a directory; on an object store 0.25, doubling
            up to 2, and where it is urgent 0.05, doubling up to 0.25.
        urgent: the writer was asked to hurry.

    Attributes:
        life: seconds between two looks whether processes live.
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
        """Wait, since nothing has come."""
        time.sleep(self._next)
        self._next = min(2 * self._next, self._longest)

    def came(self) -> None:
        """Look again soon, since something has come."""
        self._next = self._first
