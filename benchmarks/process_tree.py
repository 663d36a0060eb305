"""CPU time and memory of a sweep's processes, looked at while they run."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import NamedTuple, Self

import psutil

__all__ = ["Glance", "Watch"]

_PAUSE = 0.25


class Glance(NamedTuple):
    """One look.

    Attributes:
        time: when, in seconds since the epoch.
        cpu: seconds used so far: "flow", "server" (Prefect's), "judges", and "trainings": what was
            started for each trial and is over, supervisors, trainers and the like.
        flow_megabytes: resident memory of the flow's process.
        megabytes: proportional set size of all together, so that shared pages count once.
    """

    time: float
    cpu: dict[str, float]
    flow_megabytes: float
    megabytes: float


class Watch:
    """Looks at a flow and its descendants again and again, in a thread.

    Args:
        pid: of the flow.

    Attributes:
        glances: those so far.
    """

    def __init__(self, pid: int) -> None:
        self.glances: list[Glance] = []
        # Of Prefect's server and the judges that were seen: what each is, and its latest figure.
        self._lasting: dict[int, tuple[str, float]] = {}
        self._flow = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        pause = _PAUSE
        while not self._over.wait(pause):
            begun = time.monotonic()
            try:
                self.glances.append(self._glance())
            except psutil.NoSuchProcess:
                return
            # Memory is dear to read: at most a twentieth of the time goes into looking.
            pause = max(_PAUSE, 20 * (time.monotonic() - begun))

    def _glance(self) -> Glance:
        living = set()
        memory = self._flow.memory_full_info()
        megabytes = memory.pss
        for process in self._flow.children(recursive=True):
            try:
                command, used = " ".join(process.cmdline()), process.cpu_times()
                megabytes += process.memory_full_info().pss
            except psutil.Error:
                continue
            living.add(process.pid)
            for mark, kind in (("uvicorn", "server"), ("vinedresser.rules", "judges")):
                if mark in command:
                    self._lasting[process.pid] = (kind, used.user + used.system)
        own = self._flow.cpu_times()
        cpu = {"flow": own.user + own.system, "server": 0.0, "judges": 0.0}
        # What has ended is counted with the flow's children, whatever it was.
        cpu["trainings"] = own.children_user + own.children_system
        for pid, (kind, seconds) in self._lasting.items():
            cpu[kind] += seconds
            cpu["trainings"] -= 0.0 if pid in living else seconds
        return Glance(time.time(), cpu, memory.rss / 1e6, megabytes / 1e6)
