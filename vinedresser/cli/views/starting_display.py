"""What a command is starting, before there is anything else to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from vinedresser.cli.views.console import console, say

__all__ = ["StartingDisplay", "starting"]


class StartingDisplay:
    """Names what is being started, with its time on a terminal, elsewhere a line for each."""

    def __init__(self) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False))
        self._progress = Progress(
            *columns, TimeElapsedColumn(), console=console, transient=True, refresh_per_second=4
        )
        self._tasks = [self._progress.add_task("", total=None)]
        if console.is_terminal:
            self._progress.start()

    def begin(self, what: str) -> None:
        """Say what begins."""
        if console.is_terminal:
            self._progress.update(self._tasks[0], description=what)
        else:
            say(f"{what} ...")

    def end(self) -> None:
        """Remove the display; another one may follow."""
        self._progress.stop()


@contextmanager
def starting() -> Iterator[StartingDisplay]:
    """Yield a display, which ends with the body."""
    display = StartingDisplay()
    try:
        yield display
    finally:
        display.end()
