"""Fewer requests at a time while a server is busy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Condition

__all__ = ["Throttle", "throttle"]


class Throttle:
    """A limit of concurrent requests: halved by a busy server, and raised by one per round.

    Additive increase, multiplicative decrease (Chiu and Jain 1989).

    Attributes:
        limit: maximum number of requests; infinite until the server is busy for the first time.
    """

    def __init__(self) -> None:
        self.limit = float("inf")
        self._changed = Condition()
        self._active = 0
        # Requests that were under way when the limit was reduced must not reduce it again.
        self._reductions = 0

    @contextmanager
    def request(self, is_busy: Callable[[Exception], bool]) -> Iterator[None]:
        """Wait until a request may be sent; the block sends it.

        Args:
            is_busy: whether an error of the block says that the server is busy.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._active < max(self.limit, 1.0))
            self._active += 1
            reductions = self._reductions
        try:
            yield
        except Exception as error:
            if is_busy(error):
                with self._changed:
                    if reductions == self._reductions:
                        self._reductions += 1
                        self.limit = max(self._active / 2, 1.0)
            raise
        else:
            with self._changed:
                self.limit += 1 / self.limit
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()


def throttle() -> Throttle:
    """Return the throttle of this process."""
    return _throttle(os.getpid())


@lru_cache(maxsize=1)
def _throttle(_pid: int) -> Throttle:
    return Throttle()
