"""Subreaper and parent-death signal, through Linux's prctl."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["become_subreaper", "end_with_parent"]

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded before any fork: imports and symbol lookups are unsafe between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init.

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Have the kernel signal the calling process when its parent ends; call between fork and exec.

    The kernel watches the parent's *thread*: fork from one that lives as long as its process.

    Args:
        parent: process id of the parent.

    Raises:
        OSError: the kernel refused.
    """
    # Until the exec, the inherited handler of the parent would swallow the signal.
    signal.signal(number, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, number)
    # The parent may have died before the call.
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl {option}: {os.strerror(error)}")
