"""Which process is meant, is it alive, and how its whole family is ended (Linux, standard library).

A process id alone is not an identity: ids are reused, and a run directory may be looked at after a
reboot or from another machine. The start time in clock ticks since boot, the boot id and the host
name make it one.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "ProcessIdentity",
    "boot_id",
    "descendants",
    "identify",
    "is_alive",
    "kill_group",
    "kill_marked",
    "marked_processes",
    "this_process",
    "wait_for_end",
    "watch",
]


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, for ever.

    Attributes:
        pid: its process id.
        started: its start time, in clock ticks since boot (field 22 of /proc/PID/stat).
        boot: the machine's boot id.
        host: the machine's name.
    """

    pid: int
    started: int
    boot: str
    host: str


# Fields of /proc/PID/stat, counted from the one behind the command name.
_STATE, _PARENT, _STARTED = 0, 1, 19

# Seconds within which a killed process is gone, unless it hangs in an uninterruptible system call.
_DYING = 2.0


@cache
def boot_id() -> str:
    """Return the id that the kernel drew when the machine booted."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process that runs here now; None when there is none, or a zombie."""
    fields = _stat(pid)
    if fields is None:
        return None
    return ProcessIdentity(pid, int(fields[_STARTED]), boot_id(), _host())


def this_process() -> ProcessIdentity:
    """Return the identity of the calling process."""
    identity = identify(os.getpid())
    assert identity is not None, "a running process has an entry in /proc"
    return identity


def is_alive(identity: ProcessIdentity) -> bool | None:
    """Say whether a process still runs; None when it belongs to another machine."""
    if identity.host != _host():
        return None
    return identify(identity.pid) == identity


def watch(identity: ProcessIdentity) -> int | None:
    """Return a descriptor that becomes readable when a process of this machine ends.

    The caller closes it. None comes back when the process has ended already.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # Asked after the open: from here on the descriptor means this process and no later one.
    if identify(identity.pid) != identity:
        os.close(descriptor)
        return None
    return descriptor


def wait_for_end(identity: ProcessIdentity, timeout: float | None = None) -> bool:
    """Wait until a process of this machine has ended, without polling.

    Args:
        identity: the process, which need not be a child of the caller.
        timeout: seconds to wait at the most; None for as long as it takes.

    Returns:
        Whether it has ended.
    """
    descriptor = watch(identity)
    if descriptor is None:
        return True
    try:
        # Not select, which takes no descriptor above 1023.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))
    finally:
        os.close(descriptor)


def descendants(pid: int) -> list[int]:
    """Return the ids of the living children of a process, of their children, and so on.

    Where the process is a subreaper, these are also the daemons among them, however they left.
    """
    children: dict[int, list[int]] = {}
    for process in _process_ids():
        fields = _stat(process)
        if fields is not None:
            children.setdefault(int(fields[_PARENT]), []).append(process)
    family: list[int] = []
    generation = [pid]
    while generation:
        generation = [child for parent in generation for child in children.get(parent, ())]
        family += generation
    return family


def marked_processes(marker: str) -> Iterator[int]:
    """Yield the ids of this user's processes, but for the caller, whose environment has a marker.

    Args:
        marker: a whole entry, such as ``VINEDRESSER_RUN_ID=3f2a9c``. It is inherited by every
            descendant, also by those that left the process group or lost their parent.
    """
    wanted = marker.encode()
    for pid in _process_ids():
        if pid == os.getpid():
            continue
        # Not ours, gone in between, or a kernel thread: none of them carries our marker.
        with suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if wanted in environment.split(b"\0"):
                yield pid


def kill_marked(marker: str, *, sparing: frozenset[int] = frozenset()) -> list[int]:
    """Kill (SIGKILL) every process that carries a marker, until none is left, and await their end.

    Args:
        marker: see `marked_processes`.
        sparing: process ids to leave alone.

    Returns:
        The ids of the processes that were killed.
    """
    killed: list[int] = []
    # A process can fork between the scan and the kill: scan again until a scan finds none new.
    while fresh := [
        pid
        for pid in marked_processes(marker)
        if pid not in sparing and pid not in killed and identify(pid) is not None
    ]:
        for pid in fresh:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        deadline = time.monotonic() + _DYING
        while any(identify(pid) for pid in fresh) and time.monotonic() < deadline:
            time.sleep(0.002)
    return killed


def kill_group(leader: ProcessIdentity) -> None:
    """Kill (SIGKILL) the process group that a process leads, or led before it ended.

    Nothing happens when the machine was booted since, or the id belongs to another process now: as
    long as a member of a group lives, the kernel gives its number to nobody else.
    """
    if (leader.boot, leader.host) != (boot_id(), _host()):
        return
    if identify(leader.pid) not in (leader, None):
        return
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)


def _host() -> str:
    """Return the machine's name."""
    return os.uname().nodename


def _process_ids() -> Iterator[int]:
    """Yield the ids of the processes that run now."""
    return (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal())


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; None for no process, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name, in parentheses, may hold anything; the fields begin behind its last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in ("Z", "X") else fields
