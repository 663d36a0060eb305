"""Ctrl-C while trainings run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from vinedresser.store.storage import Location


@contextmanager
def interrupts_stop(where: Location | list[Path]) -> Iterator[None]:
    """Stop the runs with a checkpoint on the first Ctrl-C, and exit at once on the second.

    Args:
        where: the store, or the directories of the runs.
    """
    from vinedresser.tasks.interruption import INTERRUPTED, INTERRUPTION, interrupt

    def ask(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, b"vinedresser: asking the runs to stop; press Ctrl-C again to exit at once\n")
        interrupt(where, INTERRUPTION)

    INTERRUPTED.clear()
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
