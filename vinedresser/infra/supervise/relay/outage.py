"""Pauses and messages while the store of a relay is unavailable."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from vinedresser.errors import StoreFull
from vinedresser.objects.retrying import backoff

_FIRST, _LONGEST = 0.2, 3.0


class Outage:
    """Tracks the outages of one store; each is reported when it begins and when it ends.

    Args:
        say: reports a sentence to the user.
        what: fate of the data captured meanwhile, worded to follow a semicolon.
    """

    def __init__(self, say: Callable[[str], object], what: str) -> None:
        self._say = say
        self._what = what
        self._since = 0.0
        self._pauses: Iterator[float] | None = None

    def failed(self, error: OSError) -> float:
        """Record a failure; return the seconds to wait before the next attempt.

        The pauses double up to 3 s. Each is drawn at random between half and all of that, so that
        the relays of many trainings do not return at the same moment.
        """
        if self._pauses is None:
            self._pauses = backoff(_FIRST, _LONGEST)
            self._since = time.monotonic()
            self._say(f"{error}; {self._what}")
        pause = _LONGEST if isinstance(error, StoreFull) else next(self._pauses)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 (nothing secret)

    def succeeded(self, where: str) -> None:
        """Record a success.

        Args:
            where: location of the store, for the message.
        """
        if self._pauses is not None:
            away = time.monotonic() - self._since
            self._say(f"{where}: takes uploads again, after {away:.0f} s; nothing was lost")
        self._pauses = None
