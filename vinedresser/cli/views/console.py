"""The consoles of the command line, and the pieces that its views share."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vinedresser.objects import Location
from vinedresser.plain_logs import json_line, logs_json
from vinedresser.plain_text import visible

__all__ = [
    "LEVELS",
    "PlainConsole",
    "console",
    "error_console",
    "figure",
    "line_room",
    "make_console",
    "plain",
    "plain_lines",
    "plain_table",
    "print_table",
    "relative",
    "say",
    "tell",
]


class PlainConsole(Console):
    """A console on which every string is plain text: lines and cells may have data of runs.

    Brackets are not markup, colons are not emoji, and control characters are visible.
    """

    def render_str(
        self, text: str, *, style: Any = "", justify: Any = None, overflow: Any = None, **_: Any
    ) -> Text:
        """Return a string, printed or in the cell of a table, as text."""
        return Text(visible(text), style=style, justify=justify, overflow=overflow)


class _JsonConsole(PlainConsole):
    """A console on which each line is a JSON object; see `json_line`."""

    def print(self, *objects: Any, style: Any = None, **options: Any) -> None:
        """Print the lines of what is printed as objects."""
        with self.capture() as captured:
            super().print(*objects, style=style, **options)
        styles = map(str, (style, *(one.style for one in objects if isinstance(one, Text))))
        level = next((LEVELS[one] for one in styles if one in LEVELS), "info")
        for line in captured.get().splitlines():
            if line.strip():
                self.tell(line.strip(), level)

    def tell(self, message: str, level: str = "info", **more: object) -> None:
        """Print a line; see `json_line`."""
        super().print(Text(json_line(message, level, more)), soft_wrap=True)


# Of messages, by the colour that they have in a terminal.
LEVELS = {"red": "error", "yellow": "warning"}


def make_console(*, stderr: bool = False) -> PlainConsole:
    """Return a console for the format of lines that the environment asks for."""
    if logs_json():
        # Lines are whole, and tables, too.
        return _JsonConsole(highlight=False, stderr=stderr, force_terminal=False, width=10_000)
    return PlainConsole(highlight=False, stderr=stderr)


console = make_console()
# For messages beside the output of a script, which is passed on unchanged.
error_console = make_console(stderr=True)


def tell(message: str, level: str = "info", *, to: Console = console, **more: object) -> bool:
    """Print a message with its fields if lines are JSON objects; return whether they are.

    Args:
        **more: further fields; see `json_line`.
    """
    if isinstance(to, _JsonConsole):
        to.tell(message, level, **more)
    return isinstance(to, _JsonConsole)


def plain(text: str, style: str = "") -> Text:
    """Return data of a run as text with a style; see `PlainConsole`."""
    return Text(visible(text), style=style)


def plain_lines(lines: Iterable[str]) -> Text:
    """Return lines with data of a run as one text; see `PlainConsole`."""
    return Text("\n".join(map(visible, lines)))


def say(line: str | Text, to: Console = console, *, style: str = "") -> None:
    """Print a line; only a terminal wraps it, a file or pipe gets it whole."""
    text = plain(line, style) if isinstance(line, str) else line
    to.print(text, soft_wrap=not to.is_terminal)


def line_room() -> int | None:
    """Return the characters of a line of a table; None for any number, in a file or pipe.

    The environment variable COLUMNS limits it there, too.
    """
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def print_table(table: Table) -> None:
    """Print a table; a file or pipe gets its lines whole."""
    console.print(table, crop=line_room() is not None)


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
