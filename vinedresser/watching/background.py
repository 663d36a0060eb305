"""Work in the background that is done when somebody asks for its result, and not too often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Seconds that a request waits for work that is being done.
_PATIENCE = 0.4
# Seconds between two times, at least; and as a multiple of the time that the last one took, so that
# a large run does not occupy a core of the machine that trains it.
_INTERVAL = 0.5
_REST = 4.0


class Background:
    """Does work on demand, in one thread at a time; may be asked by several threads."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._working: threading.Event | None = None
        self._due = 0.0

    @property
    def busy(self) -> bool:
        """Whether the work is being done."""
        return self._working is not None

    def ask(self) -> None:
        """Begin the work if it is due, and wait until it is done, for half a second at most."""
        with self._lock:
            if self._working is None and time.monotonic() >= self._due:
                self._working = threading.Event()
                arguments = (self._working,)
                threading.Thread(
                    target=self._run, args=arguments, name="watch", daemon=True
                ).start()
            working = self._working
        if working is not None:
            working.wait(_PATIENCE)

    def _run(self, done: threading.Event) -> None:
        began = time.monotonic()
        try:
            self._work()
        finally:
            took = time.monotonic() - began
            with self._lock:
                self._due = time.monotonic() + max(_INTERVAL, _REST * took)
                self._working = None
            done.set()
