"""Signals that may mean something to a training, and mean nothing to vinedresser, such as SIGUSR1.

SLURM's ``--signal=USR1@90`` sends one to all processes of a job step. By default it would kill each
process that does not handle it, so all processes of vinedresser do, and the supervisor passes it on
to the trainer.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["FOREIGN", "handle_foreign", "holding_foreign"]

# Not among them: signals that ask a run to end (SIGTERM, SIGINT, SIGHUP, SIGQUIT), that a process
# causes itself, and those of job control. Ctrl-Z suspends a command, but not its training.
FOREIGN = frozenset(
    {
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
        signal.SIGXCPU,
        signal.SIGPWR,
        signal.SIGIO,
        signal.SIGWINCH,
        signal.SIGCONT,
        *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
    }
)


# What is called with the number of such a signal.
_handle: Callable[[int], object] | None = None


def handle_foreign(handle: Callable[[int], object] | None = None) -> None:
    """Call a function for each of these signals, instead of ending the process.

    A signal that the process ignores, as its parent had it, stays ignored, and one that has another
    handler keeps it. Call it in the main thread; a later call replaces the function.

    Args:
        handle: called in the main thread with the number of the signal; it must not wait for a
            lock. None: the signals have no effect.
    """
    global _handle  # noqa: PLW0603 - like the handlers, one for the process
    _handle = handle
    for number in FOREIGN:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _received)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOREIGN)


@contextmanager
def holding_foreign() -> Iterator[None]:
    """Hold these signals back from processes that are started in the body.

    Such a process gets those sent meanwhile when it calls `handle_foreign`. Without this, one that
    has not yet done so would be killed.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOREIGN)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _received(number: int, _: FrameType | None) -> None:
    if _handle is not None:
        _handle(number)
