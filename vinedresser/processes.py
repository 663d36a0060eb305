"""Identify, watch and kill processes and their descendants (Linux, standard library only).

A process id alone does not identify a process: ids are reused, and a run directory may be read
after a reboot or from another machine. The id is unique together with the start time in clock ticks
since boot, the boot id and the host name.
"""

from __future__ import annotations

import getpass
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "Environment",
    "ProcessIdentity",
    "boot_id",
    "children",
    "descendants",
    "identify",
    "is_alive",
    "is_suspended",
    "kill_group",
    "kill_marked",
    "kill_with",
    "marked_processes",
    "processes_with",
    "this_process",
    "user_name",
    "wait_for_end",
    "watch",
]

# Variables of a process by name.
Environment = Mapping[str, str]


@dataclass(frozen=True)
class ProcessIdentity:
    """Identifies one process, across reboots and machines.

    Attributes:
        pid: process id.
        started: start time, in clock ticks since boot (field 22 of /proc/PID/stat).
        boot: boot id of the machine.
        host: name of the machine.

    Raises:
        TypeError: a value has another type, as in a record that something else has written.
    """

    pid: int
    started: int
    boot: str
    host: str

    def __post_init__(self) -> None:
        """Refuse what is not an identity: the id becomes a path, and may get signals."""
        numbers, names = (self.pid, self.started), (self.boot, self.host)
        if not all(type(number) is int for number in numbers) or not all(
            isinstance(name, str) for name in names
        ):
            raise TypeError(f"{self} is not the identity of a process")


# Fields of /proc/PID/stat, counted from the one after the command name.
_STATE, _PARENT, _STARTED = 0, 1, 19

# Seconds within which a killed process is gone, unless it is in an uninterruptible system call.
_DYING = 2.0


@cache
def boot_id() -> str:
    """Return the kernel's random id of the current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process; None if there is none or it is a zombie."""
    fields = _stat(pid)
    if fields is None:
        return None
    return ProcessIdentity(pid, int(fields[_STARTED]), boot_id(), _host())


def is_suspended(pid: int) -> bool:
    """Return whether a process is stopped by a signal such as SIGSTOP, or by a debugger."""
    fields = _stat(pid)
    return fields is not None and fields[_STATE] in ("T", "t")


def this_process() -> ProcessIdentity:
    """Return the identity of the calling process."""
    identity = identify(os.getpid())
    assert identity is not None, "a running process has an entry in /proc"
    return identity


def user_name() -> str:
    """Return the name of the user, as `getpass.getuser` does, and MLflow with it.

    Returns:
        "" if neither the environment nor the user id has one, as in some containers.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def is_alive(identity: ProcessIdentity) -> bool | None:
    """Return whether a process still runs; None if it belongs to another machine."""
    if identity.host != _host():
        return None
    return identify(identity.pid) == identity


def watch(identity: ProcessIdentity) -> int | None:
    """Return a descriptor that becomes readable when a process of this machine ends.

    The caller closes it. Returns None if the process has already ended.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # Checked after opening: the descriptor refers to this process and no later one.
    if identify(identity.pid) != identity:
        os.close(descriptor)
        return None
    return descriptor


def wait_for_end(identity: ProcessIdentity, timeout: float | None = None) -> bool:
    """Wait until a process of this machine has ended, without polling.

    Args:
        identity: the process, not necessarily a child of the caller.
        timeout: maximum seconds to wait; None: unlimited.

    Returns:
        Whether it has ended.
    """
    descriptor = watch(identity)
    return descriptor is None or _await_end(descriptor, timeout)


def _await_end(descriptor: int, timeout: float | None) -> bool:
    """Wait until a descriptor of `watch` becomes readable, and close it; return whether it did."""
    try:
        # Not select, which is limited to descriptors up to 1023.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))
    finally:
        os.close(descriptor)


def children(pid: int) -> list[int]:
    """Return the ids of the living children of a process."""
    return _families().get(pid, [])


def descendants(pid: int) -> list[int]:
    """Return the ids of the living children of a process, of their children, and so on.

    If the process is a subreaper, these include daemons that detached from their parents.
    """
    families = _families()
    found: list[int] = []
    generation = [pid]
    while generation:
        generation = [child for parent in generation for child in families.get(parent, ())]
        found += generation
    return found


def marked_processes(marker: str) -> Iterator[int]:
    """Yield the ids of this user's processes whose environment has a marker, except the caller.

    Args:
        marker: a whole entry, such as ``VINEDRESSER_RUN_ID=3f2a9c``. Every descendant inherits it,
            even if it left the process group or lost its parent.
    """
    return processes_with(_has(marker))


def processes_with(belongs: Callable[[Environment], bool]) -> Iterator[int]:
    """Yield the ids of this user's processes with a certain environment, except the caller.

    Args:
        belongs: called with the environment with which a process was started; descendants
            inherit it.
    """
    return (pid for pid in _process_ids() if pid != os.getpid() and _matches(pid, belongs))


def kill_marked(marker: str, *, sparing: frozenset[int] = frozenset()) -> list[int]:
    """Kill (SIGKILL) every process with a marker until none is left, and wait for their end.

    Args:
        marker: see `marked_processes`.
        sparing: process ids to leave alone.

    Returns:
        The ids of the processes that were killed.
    """
    return kill_with(_has(marker), sparing=sparing)


def kill_with(
    belongs: Callable[[Environment], bool], *, sparing: frozenset[int] = frozenset()
) -> list[int]:
    """Kill (SIGKILL) every process with a certain environment, and wait for their end.

    Args:
        belongs: see `processes_with`.
        sparing: process ids to leave alone.

    Returns:
        The ids of the processes that were killed.
    """
    killed: list[int] = []
    # A process may fork between the scan and the kill: repeat until a scan finds no new one.
    while fresh := [
        pid
        for pid in processes_with(belongs)
        if pid not in sparing and pid not in killed and identify(pid) is not None
    ]:
        for pid in fresh:
            _kill_if(pid, belongs)
            killed.append(pid)
        deadline = time.monotonic() + _DYING
        while any(identify(pid) for pid in fresh) and time.monotonic() < deadline:
            time.sleep(0.002)
    return killed


def kill_group(leader: ProcessIdentity) -> None:
    """Kill (SIGKILL) the process group of a leader, and wait for the leader's end.

    The leader may have ended already. Does nothing if the machine was rebooted since or the id now
    belongs to another process: as long as a group has members, the kernel does not reuse its
    number.
    """
    if (leader.boot, leader.host) != (boot_id(), _host()):
        return
    if identify(leader.pid) not in (leader, None):
        return
    # Opened before: its first thread may end before the others, which keep its files open.
    descriptor = watch(leader)
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    # A dying process no longer shows its environment, so that `kill_with` would not wait for it.
    if descriptor is not None:
        _await_end(descriptor, _DYING)


def _has(marker: str) -> Callable[[Environment], bool]:
    """Return a function that returns whether an environment has an entry, ``NAME=value``."""
    name, _, value = marker.partition("=")
    return lambda environment: environment.get(name) == value


def _matches(pid: int, belongs: Callable[[Environment], bool]) -> bool:
    """Return whether a process has a certain environment."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        # Another user's process, one that just ended, or a kernel thread.
        return False
    entries = (os.fsdecode(entry).partition("=") for entry in text.split(b"\0"))
    # The first entry of a name counts, as for getenv.
    return belongs({name: value for name, _, value in reversed([*entries])})


def _kill_if(pid: int, belongs: Callable[[Environment], bool]) -> None:
    """Kill a process with a certain environment, and no later process with its id."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            # Checked after opening: the descriptor refers to this process and no later one.
            if _matches(pid, belongs):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _host() -> str:
    """Return the machine's name."""
    return os.uname().nodename


def _process_ids() -> list[int]:
    """Return the ids of all running processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _families() -> dict[int, list[int]]:
    """Return the children of each process that has some."""
    families: dict[int, list[int]] = {}
    for process in _process_ids():
        fields = _stat(process)
        if fields is not None:
            families.setdefault(int(fields[_PARENT]), []).append(process)
    return families


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name in parentheses may itself contain parentheses: split at the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in ("Z", "X") else fields
