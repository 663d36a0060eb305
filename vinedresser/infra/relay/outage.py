"""Trying again while a store is away, and saying so once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from vinedresser.errors import StoreError, StoreFull

__all__ = ["Outage"]

_FIRST, _LONGEST = 0.2, 3.0


class Outage:
    """One store's times of absence.

    Args:
        say: says a sentence to a person.
        what: becomes of what is captured meanwhile, in words that can follow a semicolon.
    """

    def __init__(self, say: Callable[[str], object], what: str) -> None:
        self._say = say
        self._what = what
        self._since = 0.0
        self._pause = 0.0

    def failed(self, error: StoreError) -> float:
        """Take note of a failure; return the seconds to wait before the next attempt.

        They double from failure to failure up to 3 s, and are drawn at random between half and
        all of that, so that the relays of many trainings do not come back at the same moment.
        """
        if not self._pause:
            self._since = time.monotonic()
            self._say(f"{error}; {self._what}")
        self._pause = min(2 * self._pause, _LONGEST) or _FIRST
        if isinstance(error, StoreFull):
            self._pause = _LONGEST
        return self._pause * random.uniform(0.5, 1.0)  # noqa: S311 (nothing secret)

    def succeeded(self, where: str) -> None:
        """Take note that the store takes what it is given."""
        if self._pause:
            away = time.monotonic() - self._since
            self._say(f"{where}: takes uploads again, after {away:.0f} s; nothing was lost")
        self._pause = 0.0
