"""Whether all is to end: asked at the keyboard or by a signal, seen where more would begin."""

from __future__ import annotations

import threading
from pathlib import Path

from vinedresser.infra.launcher import request_stop
from vinedresser.store.storage import Location
from vinedresser.tasks.stores import owned_here

__all__ = ["INTERRUPTED", "INTERRUPTION", "TERMINATION", "Interruption", "interrupt"]

# As the reasons of a stop, by which it is told from others.
INTERRUPTION = "interrupted at the keyboard"
TERMINATION = "its flow was cancelled, or sent SIGTERM"


class Interruption(threading.Event):
    """Set when all is to end.

    Attributes:
        reason: why, one of the two above; "" as long as it is not set.
    """

    reason = ""

    def clear(self) -> None:
        """Begin anew."""
        super().clear()
        self.reason = ""

    @staticmethod
    def is_reason(reason: str) -> bool:
        """Say whether a run that was stopped for this reason was only broken off."""
        return reason in (INTERRUPTION, TERMINATION)


# Of this process, like the signal that sets it.
INTERRUPTED = Interruption()


def interrupt(where: Location | list[Path], reason: str) -> None:
    """Ask all runs of this process to stop, with their checkpoint, and have no further one begin.

    Args:
        where: their store, or their directories.
        reason: why; the first one that is given counts.

    Raises:
        CorruptData: a launch record is not readable.
        StoreError: a run's directory cannot be written.
    """
    INTERRUPTED.reason = INTERRUPTED.reason or reason
    INTERRUPTED.set()
    for directory in where if isinstance(where, list) else owned_here(where):
        request_stop(directory, reason=INTERRUPTED.reason)
