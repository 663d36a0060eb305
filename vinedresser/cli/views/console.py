"""The consoles of the command line, and the pieces that its views share."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vinedresser.store.storage import Location

__all__ = ["console", "error_console", "figure", "plain_table", "relative", "say"]

console = Console(highlight=False)
# For messages beside the output of a script, which is passed on unchanged.
error_console = Console(highlight=False, stderr=True)


def say(line: str | Text, to: Console = console, *, style: str = "") -> None:
    """Print a line; only a terminal wraps it, a file or pipe gets it whole."""
    text = Text(line, style=style) if isinstance(line, str) else line
    to.print(text, soft_wrap=not to.is_terminal)


def plain_table() -> Table:
    """Return an empty table without borders."""
    return Table(header_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)


def figure(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:.3g}" if math.isfinite(value) else str(value)


def relative(path: Location) -> Location:
    """Return a path relative to the working directory if it lies below it; URLs are unchanged."""
    if isinstance(path, str):
        return path
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
