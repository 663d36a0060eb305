"""Two ties between a process and its family that only Linux's prctl can make."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["become_subreaper", "end_with_parent"]

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded before any fork: between fork and exec nothing may be imported or looked up.
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make orphans among the descendants of this process its own children, instead of init's.

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Tie the calling process to its parent's life by a signal; called between fork and exec.

    The kernel means the parent's *thread*: fork from a thread that lives as long as its process.

    Args:
        parent: process id of the parent.
        number: the signal.

    Raises:
        OSError: the kernel refused.
    """
    # The parent's handler, inherited, would take the signal and do nothing with it before the exec.
    signal.signal(number, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, number)
    # It may have died before the kernel was told.
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl {option}: {os.strerror(error)}")
