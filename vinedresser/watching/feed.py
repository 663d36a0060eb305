"""The newest view of a run or a store, made in the background when somebody asks for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from vinedresser.errors import VinedresserError
from vinedresser.explain.reports.templating import rendered
from vinedresser.explain.watching.view import View

__all__ = ["Feed"]

# Seconds that a request waits for a view that is being made; then it gets the previous one.
_PATIENCE = 0.4
# Seconds between two views, at least; and as a multiple of the time that the last one took, so that
# a large run does not occupy a core of the machine that trains it.
_INTERVAL = 0.5
_REST = 4.0


class Feed:
    """Makes views on demand, one at a time and not too often; may be used by several threads.

    Args:
        make: makes a view; called by one thread at a time.
        title: title until the first view is made.
    """

    def __init__(self, make: Callable[[], View], title: str) -> None:
        self._make = make
        self._title = title
        self._lock = threading.Lock()
        self._making: threading.Event | None = None
        self._due = 0.0
        self._view = View(title, "reading", rendered("reading.html.j2", title=title, problem=""))

    def latest(self) -> View:
        """Return the newest view, within half a second: it may be the one before."""
        with self._lock:
            if self._making is None and time.monotonic() >= self._due:
                self._making = threading.Event()
                threading.Thread(
                    target=self._renew, args=(self._making,), name="watch", daemon=True
                ).start()
            making = self._making
        if making is not None:
            making.wait(_PATIENCE)
        with self._lock:
            return self._view

    def _renew(self, made: threading.Event) -> None:
        began = time.monotonic()
        problem = "the page cannot be drawn; the terminal of vinedresser watch says why"
        view = None
        try:
            view = self._make()
        except VinedresserError as error:
            problem = str(error)
        finally:
            if view is None:
                html = rendered("reading.html.j2", title=self._title, problem=problem)
                view = View(self._title, "unreadable", html)
            took = time.monotonic() - began
            with self._lock:
                self._view = view
                self._due = time.monotonic() + max(_INTERVAL, _REST * took)
                self._making = None
            made.set()
