"""Messages of the supervisor itself."""

from __future__ import annotations

import os
import select
from contextlib import suppress

from vinedresser.plain_text import visible


def say(message: str) -> None:
    """Write a line to the standard error, if that is possible without blocking."""
    # The parent may have closed the standard error, or not read it.
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"vinedresser supervisor: {visible(message)}\n".encode())
