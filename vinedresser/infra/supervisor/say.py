"""How the supervisor speaks for itself."""

from __future__ import annotations

import os
import select
from contextlib import suppress

__all__ = ["say"]


def say(message: str) -> None:
    """Write a line to the standard error, if anybody can take it at once."""
    # Whoever started us may have closed our standard error, or leave it unread.
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"vinedresser supervisor: {message}\n".encode())
