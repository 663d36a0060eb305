"""Classifies the end of a training by its exit code and by stop requests."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence

from vinedresser.infra.supervise.hosts.hosts_job import HostsJob
from vinedresser.infra.supervise.supervisor.first_failure import Ended, is_victim
from vinedresser.infra.supervise.supervisor.job import Job
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
# By name of a signal.
_BY_WHOM = {"SIGKILL": ": killed by a user, or by the kernel because memory ran out"}


def verdict(
    job: Job | HostsJob,
    *,
    stop: StopRecord | None,
    signals: Sequence[str],
    steps: Mapping[int, int],
    ended: float,
    failure: str = "",
) -> ExitRecord:
    """Return the exit record of a training that ran.

    Args:
        job: its ranks, all of which have ended.
        stop: the stop record that was passed on to the trainer, if any.
        signals: names of the other signals that it was sent, in order.
        steps: last completed optimizer step of each rank that has one.
        ended: seconds since the epoch.
        failure: what the script has written about its failure, or "".
    """
    if job.fault and stop is None:
        return _not_begun(job, ended)
    rank: Ended = job.outcome()
    # Above 128 it means 128 + signal, as shells and vinedresser's hook report it.
    code = rank.code
    number = -code if code < 0 else max(code - 128, 0)
    name = _signal_name(number)
    complaint = failure or rank.said
    cause: ExitCause
    if stop is not None:
        cause, reason = "stopped", stop.reason
    elif code == 0:
        cause, reason = "finished", "the program ended with exit code 0"
    elif name and number not in _FAULTS:
        cause, reason = "killed", rank.lost or f"ended by {name}"
        if not rank.lost:
            reason += _BY_WHOM.get(name, "")
    else:
        cause = "crashed"
        reason = complaint or f"exit code {code}"
        if signals and not name:
            # Its own answer to them, such as a code by which a batch system requeues it.
            reason = f"exit code {code} after {' and '.join(dict.fromkeys(signals))}"
        elif name:
            reason = f"ended by {name}" + (f"; last output: {complaint}" if complaint else "")
    failed = None
    if len(job.ranks) > 1 and cause in ("crashed", "killed"):
        failed, reason = rank.number, _of_rank(rank, job, steps, reason)
    return ExitRecord(
        cause=cause,
        reason=reason,
        ended=ended,
        code=code if code >= 0 else None,
        signal=name,
        last_step=max(steps.values(), default=None),
        stop=stop,
        rank=failed,
    )


def _not_begun(job: Job | HostsJob, ended: float) -> ExitRecord:
    """Return the exit record of a job whose launcher has not started its ranks."""
    name = _signal_name(job.ended_by)
    if not name:
        return ExitRecord("crashed", job.fault, ended, code=126)
    cause: ExitCause = "crashed" if job.ended_by in _FAULTS else "killed"
    reason = f"{job.fault}: ended by {name}{_BY_WHOM.get(name, '')}"
    return ExitRecord(cause, reason, ended, signal=name)


def _of_rank(rank: Ended, job: Job | HostsJob, steps: Mapping[int, int], reason: str) -> str:
    """Return why a job of several ranks failed, with the rank and its step."""
    step = steps.get(rank.number)
    text = f"rank {rank.number}{'' if step is None else f' after step {step}'}: {reason}"
    if not is_victim(rank.said):
        return text
    early = (one for one in job.ranks if one.number not in job.late)
    if gone := [one.number for one in early if not one.code]:
        return f"{text} ({_ranks(gone)} had ended with exit code 0)"
    # A time limit of the others has passed while they waited for it.
    return f"{text} ({_ranks(job.late)} was still running)" if len(job.late) == 1 else text


def _ranks(numbers: Sequence[int]) -> str:
    plural = "s" if len(numbers) > 1 else ""
    return f"rank{plural} {', '.join(map(str, numbers))}"


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
