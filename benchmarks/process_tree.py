"""CPU time and memory of a sweep's processes, sampled while they run."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import NamedTuple, Self

import psutil

__all__ = ["Glance", "Watch"]

_PAUSE = 0.25


class Glance(NamedTuple):
    """One sample.

    Attributes:
        time: time in seconds since the epoch.
        cpu: CPU seconds used so far: "flow", "server" (Prefect), "judges", and "trainings" (exited
            processes of trials: supervisors, trainers and the like).
        flow_megabytes: resident memory of the flow's process.
        megabytes: proportional set size of all processes, which counts shared pages once.
    """

    time: float
    cpu: dict[str, float]
    flow_megabytes: float
    megabytes: float


class Watch:
    """Samples a flow and its descendants repeatedly, in a thread.

    Args:
        pid: process id of the flow.

    Attributes:
        glances: samples so far.
    """

    def __init__(self, pid: int) -> None:
        self.glances: list[Glance] = []
        # Kind and latest CPU seconds of Prefect's server and of each judge seen.
        self._lasting: dict[int, tuple[str, float]] = {}
        self._flow = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        """Start sampling."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop sampling."""
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
            # Reading memory is expensive: sample for at most a twentieth of the time.
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
            seconds = used.user + used.system
            for mark, kind in (("prefect_process", "server"), ("vinedresser.rules", "judges")):
                if mark in command:
                    self._lasting[process.pid] = (kind, seconds)
            if "supervisor.server" in command and process.ppid() == self._flow.pid:
                seconds += used.children_user + used.children_system
                self._lasting[process.pid] = ("trainings", seconds)
        own = self._flow.cpu_times()
        cpu = {"flow": own.user + own.system, "server": 0.0, "judges": 0.0}
        # Exited processes of any kind are included in the flow's children.
        cpu["trainings"] = own.children_user + own.children_system
        for pid, (kind, seconds) in self._lasting.items():
            cpu[kind] += seconds
            cpu["trainings"] -= 0.0 if pid in living else seconds
        return Glance(time.time(), cpu, memory.rss / 1e6, megabytes / 1e6)
