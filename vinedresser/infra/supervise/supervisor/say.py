"""Messages of the supervisor itself."""

from __future__ import annotations

import os
import select
from contextlib import suppress

from vinedresser.plain_logs import LOG_FORMAT, json_line
from vinedresser.plain_text import visible


def say(message: str) -> None:
    """Write a line to the standard error, if that is possible without blocking."""
    line = f"vinedresser supervisor: {visible(message)}"
    # Without a check of its value, which is an error of the command.
    if os.environ.get(LOG_FORMAT) == "json":
        line = json_line(message, "warning", {"logger": "supervisor"})
    # The parent may have closed the standard error, or not read it.
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"{line}\n".encode())
