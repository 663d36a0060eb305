"""Interruption of this process, requested at the keyboard or by a signal."""

from __future__ import annotations

import threading
from pathlib import Path

from vinedresser.infra.launcher import request_stop
from vinedresser.store.storage import Location
from vinedresser.tasks.stores import owned_here

__all__ = ["INTERRUPTED", "INTERRUPTION", "TERMINATION", "Interruption", "interrupt"]

# Reasons of a stop, by which an interruption is recognised.
INTERRUPTION = "interrupted at the keyboard"
TERMINATION = "its flow was cancelled, or sent SIGTERM"


class Interruption(threading.Event):
    """Set when all work of this process is to end.

    Attributes:
        reason: `INTERRUPTION` or `TERMINATION`; "" while it is not set.
    """

    reason = ""

    def clear(self) -> None:
        """Reset the event and its reason."""
        super().clear()
        self.reason = ""

    @staticmethod
    def is_reason(reason: str) -> bool:
        """Return whether a run stopped for this reason was only interrupted."""
        return reason in (INTERRUPTION, TERMINATION)


# One for the process, like the signal that sets it.
INTERRUPTED = Interruption()


def interrupt(where: Location | list[Path], reason: str) -> None:
    """Ask all runs of this process to save a checkpoint and stop, and begin no other.

    Args:
        where: their store or their directories.
        reason: `INTERRUPTION` or `TERMINATION`; the first call counts.

    Raises:
        CorruptData: a launch record cannot be read.
        StoreError: a run directory cannot be written.
    """
    INTERRUPTED.reason = INTERRUPTED.reason or reason
    INTERRUPTED.set()
    for directory in where if isinstance(where, list) else owned_here(where):
        request_stop(directory, reason=INTERRUPTED.reason)
