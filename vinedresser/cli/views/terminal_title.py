"""The latest values of a run in the title of the terminal, which leaves its text to the script."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinedresser.cli.views.beside import shown_beside
from vinedresser.cli.views.latest_values import LatestValues, fitting
from vinedresser.errors import VinedresserError
from vinedresser.plain_text import visible
from vinedresser.store.reading.reader import Run, open_run

# Seconds between two titles.
_PAUSE = 1.0
# Longer titles are cut off by most terminals.
_CHARACTERS = 100
# Terminals without a title, of which some would print it.
_UNTITLED = ("", "dumb", "linux")
# Control sequences of xterm, understood by terminals with a title: keep, set and restore it.
_KEEP, _SET, _RESTORE = "\x1b[22;0t", "\x1b]0;{}\x07", "\x1b[23;0t"


@contextmanager
def live_title(directory: Path, total: int | None) -> Iterator[None]:
    """Show step, loss, metric and pace of a run in the terminal's title while the body runs.

    Nothing is shown if standard error is no terminal or one without a title, such as a notebook's.

    Args:
        total: number of steps of the run; None if unknown.
    """
    # The command of a notebook's cell has a terminal, whose text becomes the cell's output.
    in_notebook = "JPY_PARENT_PID" in os.environ
    if in_notebook or not sys.stderr.isatty() or os.environ.get("TERM", "") in _UNTITLED:
        yield
        return
    with shown_beside(_show, directory, total):
        yield


def _write(text: str) -> None:
    """Write to the terminal at once, so that no output of the script comes between."""
    os.write(sys.stderr.fileno(), text.encode())


def _show(directory: Path, total: int | None, over: threading.Event) -> None:
    """Set the title until the run is over."""
    run: Run | None = None
    kept = False
    while not over.wait(_PAUSE):
        try:
            if run is None:
                run = open_run(directory)
                values = LatestValues(run)
            run.refresh()
            steps = run.steps("train")
            if not len(steps):
                continue
            parts = values.parts(int(steps[-1]) + 1, total)
        except VinedresserError:
            # The result of the run names the damage.
            continue
        if not kept:
            _write(_KEEP)
            kept = True
        name = visible(directory.name)
        _write(_SET.format(fitting([name, f"step {steps[-1]}", *parts], _CHARACTERS)))
    if kept:
        _write(_RESTORE)
