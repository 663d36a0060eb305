"""Ctrl-C, SIGTERM and SIGHUP while trainings run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from vinedresser.store.storage import Location

__all__ = ["ending_flow", "exit_code", "interrupts_stop"]

_ASKED = b"vinedresser: asking the runs to stop; press Ctrl-C again to exit at once\n"
_SHOW_CURSOR = b"\x1b[?25h"


@contextmanager
def interrupts_stop(where: Location | list[Path]) -> Iterator[None]:
    """Stop the runs with a checkpoint on the first signal, and exit at once on the second.

    After the first one, the handlers stay: what remains is the end of the command.

    Args:
        where: the store, or the directories of the runs.
    """
    from vinedresser.tasks.interruption import INTERRUPTED, REASONS, interrupt

    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def ask(number: int, _frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, _exit_at_once)
        _forsake_closed(terminals)
        with suppress(OSError):
            os.write(2, _ASKED)
        interrupt(where, signal.Signals(number))

    INTERRUPTED.clear()
    before = {}
    for number in REASONS:
        # What nohup has the process ignore stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, ask)
    INTERRUPTED.handler = ask
    try:
        yield
    finally:
        INTERRUPTED.handler = None
        if not INTERRUPTED.is_set():
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def ending_flow(store: Location) -> Iterator[None]:
    """Run a flow under `interrupts_stop`; exit if a signal ends it before it has begun to work.

    Args:
        store: store of its runs.
    """
    from prefect.exceptions import TerminationSignal

    with interrupts_stop(store):
        try:
            yield
        except TerminationSignal as signalled:
            sys.exit(128 + signalled.signal)


def exit_code(code: int) -> int:
    """Return the exit code of a command: 128 + N if signal N interrupted it.

    Args:
        code: the code of a command that was not interrupted.
    """
    from vinedresser.tasks.interruption import INTERRUPTED

    return code if INTERRUPTED.number is None else 128 + INTERRUPTED.number


def _exit_at_once(number: int, _frame: FrameType | None) -> None:
    """Exit without a word; supervisors, judges and the server notice the end of this process."""
    if os.isatty(1):
        # The display of progress has hidden it.
        os.write(1, _SHOW_CURSOR)
    os._exit(128 + number)


def _forsake_closed(terminals: list[int]) -> None:
    """Discard output to terminals that have been closed, where printing fails."""
    closed = [descriptor for descriptor in terminals if not os.isatty(descriptor)]
    if closed:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for descriptor in closed:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
