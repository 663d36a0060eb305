"""The limits of time and memory of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from vinedresser.store.records import LaunchSettings

# Seconds between two looks.
_LOOK = 1.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Limits:
    """Tells when a run is over its limit of time or memory.

    Args:
        members: returns the ids of the living processes of the run.
    """

    def __init__(self, settings: LaunchSettings, members: Callable[[], Iterable[int]]) -> None:
        self._settings = settings
        self._members = members
        self._begun = time.monotonic()
        self._next = self._begun

    def exceeded(self, now: float) -> str:
        """Return which limit is exceeded, as one sentence; "" for none.

        Args:
            now: time of the monotonic clock.
        """
        if now < self._next:
            return ""
        self._next = now + _LOOK
        settings = self._settings
        seconds, most = settings.most_seconds, settings.most_bytes
        if seconds is not None:
            if now - self._begun >= seconds:
                return f"over its time limit of {_as_time(settings.time_limit)} (run.time_limit)"
            self._next = min(self._next, self._begun + seconds)
        if most is not None and (used := _memory(self._members(), most)) > most:
            return (
                f"its processes use {used / 1e9:.3g} GB, over its memory limit of "
                f"{settings.memory_limit} (run.memory_limit)"
            )
        return ""


def _as_time(given: float | str | None) -> str:
    return given if isinstance(given, str) else f"{given:g} s"


def _memory(processes: Iterable[int], most: int) -> int:
    """Return the bytes of memory that processes use.

    What they share counts for each of them, unless that is above a number of bytes: then the kernel
    divides it among them (proportional set size), which takes it longer.
    """
    pids = list(processes)
    resident = sum(map(_resident, pids))
    return resident if resident <= most else sum(map(_proportional, pids))


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    # It has ended.
    return 0


def _proportional(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return _resident(pid)
