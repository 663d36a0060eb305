"""Whether a process works between two looks at where it stands."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from vinedresser.processes import descendants

__all__ = ["Stillness"]

# Limits of a process that only waits. A data loader wakes its main thread every five seconds to see
# whether its workers live, a download does so for each block.
_WAKES = 1.0
# Share of a core. Threads that wait for Python's lock look for it 200 times a second.
_SHARE = 0.01
# Bytes per second that are read and written; the heartbeats of a hook have some hundred.
_BYTES = 10_000
# Of each that is allowed for the looks themselves.
_SLACK = (10, 0.05, 100_000)
_TICKS = os.sysconf("SC_CLK_TCK")


class _Work(NamedTuple):
    """What a process has done since its start.

    Attributes:
        wakes: number of context switches of its main thread.
        seconds: processor time, with that of its descendants.
        bytes: bytes read and written by all of them, but for those that sockets receive.
    """

    wakes: int = 0
    seconds: float = 0.0
    bytes: int = 0


class Stillness:
    """Compares what a process does at several looks.

    Args:
        pid: its process id.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._frames: list[list[Any]] = []
        self._since = 0.0
        self._first = _Work()

    def look(self, frames: list[list[Any]]) -> dict[str, Any]:
        """Return for how many seconds it is "here", and whether it "works"; see `StacksRecord`.

        Args:
            frames: of its main thread; [] if it does not say where it is.
        """
        now, work = time.monotonic(), _work(self._pid)
        if not frames or frames != self._frames:
            self._frames, self._since, self._first = frames, now, work
            return {"here": 0.0, "works": True}
        seconds = now - self._since
        done = [after - before for after, before in zip(work, self._first, strict=True)]
        rates = zip(done, (_WAKES, _SHARE, _BYTES), _SLACK, strict=True)
        works = any(abs(one) > rate * seconds + slack for one, rate, slack in rates)
        return {"here": seconds, "works": works}


def _work(pid: int) -> _Work:
    """Return what a process and its descendants have done, without those that have ended."""
    seconds, moved = 0.0, 0
    for one in (pid, *descendants(pid)):
        with suppress(OSError):
            # From the state on: the name may have blanks.
            stat = Path(f"/proc/{one}/stat").read_text(errors="replace").rpartition(")")[2].split()
            seconds += (int(stat[11]) + int(stat[12])) / _TICKS
            moved += _sum(Path(f"/proc/{one}/io"), "rchar", "wchar")
    wakes = 0
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status")
        wakes = _sum(status, "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    return _Work(wakes, seconds, moved)


def _sum(file: Path, *names: str) -> int:
    """Return the sum of some of the numbers of a file of the kernel."""
    pairs = (line.split(":") for line in file.read_text(errors="replace").splitlines())
    return sum(int(value) for name, value in pairs if name in names)
