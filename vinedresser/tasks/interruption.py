"""Interruption of this process, requested at the keyboard or by a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from vinedresser.infra.catalog.stores import owned_here
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.objects import Location

__all__ = ["INTERRUPTED", "REASONS", "Interruption", "interrupt"]

# Signals that end a flow in order, with the reasons of the stops, by which they are recognised.
REASONS = {
    signal.SIGINT: "interrupted at the keyboard",
    signal.SIGTERM: "its flow was cancelled, or sent SIGTERM",
    signal.SIGHUP: "its terminal was closed",
}


class Interruption(threading.Event):
    """Set when all work of this process is to end.

    Attributes:
        number: the signal that asked for it; None while it is not set.
        handler: the command line's handler of these signals; None in a process of Prefect's worker,
            whose signals Prefect handles.
    """

    number: signal.Signals | None = None
    handler: Callable[[int, FrameType | None], None] | None = None

    @property
    def reason(self) -> str:
        """The reason of its stops; "" while it is not set."""
        return "" if self.number is None else REASONS[self.number]

    def clear(self) -> None:
        """Reset the event and its signal."""
        super().clear()
        self.number = None

    @staticmethod
    def is_reason(reason: str) -> bool:
        """Return whether a run stopped for this reason was only interrupted."""
        return reason in REASONS.values()


# One for the process, like the signal that sets it.
INTERRUPTED = Interruption()


def interrupt(where: Location | list[Path], number: signal.Signals) -> None:
    """Ask all runs of this process to save a checkpoint and stop, and begin no other.

    Args:
        where: their store or their directories.
        number: a signal of `REASONS`; the first call counts.

    Raises:
        CorruptData: a launch record cannot be read.
        StoreError: a run directory cannot be written.
    """
    INTERRUPTED.number = INTERRUPTED.number or number
    INTERRUPTED.set()
    for directory in where if isinstance(where, list) else owned_here(where):
        request_stop(directory, reason=INTERRUPTED.reason)
