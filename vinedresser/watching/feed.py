"""The newest view of a run, made in the background when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable

from vinedresser.errors import VinedresserError
from vinedresser.explain.reports.templating import rendered
from vinedresser.explain.watching.view import View
from vinedresser.watching.background import Background


class Feed:
    """Makes views on demand, one at a time and not too often; may be used by several threads.

    Args:
        make: makes a view; called by one thread at a time.
        title: title until the first view is made.
    """

    def __init__(self, make: Callable[[], View], title: str) -> None:
        self._make = make
        self._title = title
        self._background = Background(self._renew)
        self._view = View(title, "reading", rendered("reading.html.j2", title=title, problem=""))

    def latest(self) -> View:
        """Return the newest view, within half a second: it may be the one before."""
        self._background.ask()
        return self._view

    def _renew(self) -> None:
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
            self._view = view
