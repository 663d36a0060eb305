"""Classifies the end of a training by its exit code and by stop requests."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from vinedresser.store.records import ExitCause, ExitRecord, StopRecord

__all__ = ["never_started", "not_startable", "verdict"]

# Signals that a process causes itself; all others come from outside.
_FAULTS = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
        signal.SIGXCPU,
        signal.SIGXFSZ,
    }
)


def verdict(
    code: int,
    *,
    stop: StopRecord | None,
    complaint: str,
    signals: Sequence[str],
    last_step: int | None,
    ended: float,
) -> ExitRecord:
    """Return the exit record of a training that ran.

    Args:
        code: exit code, or the negative number of the signal that ended it. Codes above 128 mean
            128 + signal, as shells and vinedresser's hook report it.
        stop: the stop record that was passed on to the trainer, if any.
        complaint: the last line of its traceback or of its standard error.
        signals: names of the other signals that it was sent, in order.
        last_step: last completed optimizer step.
        ended: seconds since the epoch.
    """
    number = -code if code < 0 else max(code - 128, 0)
    name = _signal_name(number)
    cause: ExitCause
    if stop is not None:
        cause, reason = "stopped", stop.reason
    elif code == 0:
        cause, reason = "finished", "the program ended with exit code 0"
    elif name and number not in _FAULTS:
        cause, reason = "killed", f"ended by {name}"
        if number == signal.SIGKILL:
            reason += ": killed by a user, or by the kernel because memory ran out"
    else:
        cause = "crashed"
        reason = complaint or f"exit code {code}"
        if signals and not name:
            # Its own answer to them, such as a code by which a batch system requeues it.
            reason = f"exit code {code} after {' and '.join(dict.fromkeys(signals))}"
        elif name:
            reason = f"ended by {name}" + (f"; last output: {complaint}" if complaint else "")
    return ExitRecord(
        cause=cause,
        reason=reason,
        ended=ended,
        code=code if code >= 0 else None,
        signal=name,
        last_step=last_step,
        stop=stop,
    )


def never_started(stop: StopRecord) -> ExitRecord:
    """Return the exit record of a training that was stopped before it began."""
    return ExitRecord("stopped", stop.reason, time.time(), stop=stop)


def not_startable(error: OSError) -> ExitRecord:
    """Return the exit record of a program that could not be started, with a shell's exit code.

    Args:
        error: the error of the operating system; ``filename`` is the program or the directory.
    """
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    return ExitRecord(
        cause="crashed",
        reason=f"{error.filename}: {error.strerror}",
        ended=time.time(),
        code=127 if missing else 126,
    )


def _signal_name(number: int) -> str:
    """Return the name of a signal; "" for an unknown number."""
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
