"""The load of the machine while it trains, under the names of MLflow's system metrics.

The standard library reads it from the kernel: a supervisor loads no other package. Only on a
machine with GPUs is pynvml loaded, if it is installed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from vinedresser.errors import CorruptData, StoreError
from vinedresser.infra.supervise.gpus import kernel_values
from vinedresser.objects import LocalStorage
from vinedresser.objects.files import APPEND, open_file
from vinedresser.store.records import Heartbeat, SystemRecord, heartbeat_key, read_record

# Seconds between two records: a share of the time so far, within these limits.
_LEAST, _MOST, _SHARE = 1.0, 300.0, 0.005
# Seconds between two looks at the GPUs.
_LOOK = 2.0
_MEGABYTE = 1e6
# Positions in the first line of /proc/stat: idle, and waiting for a disk.
_IDLE = (3, 4)


class SystemMetrics:
    """Appends the load of the machine to a file of the run, from time to time.

    A record a second at first, and then one whenever the training has become 0.5 % older, at least
    every five minutes: about 800 in an hour, 1,400 in a day and 3,200 in a week. Each takes 0.2 ms
    of a core and 280 bytes.

    Args:
        directory: the run directory, whose file system is the disk.
        gpus: names of the GPUs of the training, as in CUDA_VISIBLE_DEVICES.
        report: called with one sentence if the file cannot be written.
    """

    def __init__(self, directory: Path, gpus: Sequence[str], report: Callable[[str], None]) -> None:
        self._directory = directory
        self._storage = LocalStorage(directory)
        self._report = report
        self._begun = time.monotonic()
        self._next = self._begun + _LEAST
        self._ticks = _ticks()
        self._gpus = _Gpus(gpus) if gpus else None

    def tend(self, now: float) -> None:
        """Append a record if it is time.

        Args:
            now: time of the monotonic clock.
        """
        if now < self._next:
            return
        self._next = now + min(max(_LEAST, _SHARE * (now - self._begun)), _MOST)
        try:
            values = {**self._processor(), **_memory(), **self._disk()}
            values |= self._gpus.values if self._gpus is not None else {}
            line = json.dumps(SystemRecord(time.time(), self._step(), values).to_json())
            file = open_file(self._directory, SystemRecord.KEY, APPEND)
            try:
                os.write(file, f"{line}\n".encode())
            finally:
                os.close(file)
        except OSError as error:
            self._next = float("inf")
            self._report(f"system metrics are no longer recorded: {error.strerror or error}")

    def _processor(self) -> dict[str, float]:
        before, self._ticks = self._ticks, _ticks()
        passed = [new - old for new, old in zip(self._ticks, before, strict=True)]
        total = sum(passed)
        idle = sum(passed[place] for place in _IDLE)
        return {"cpu_utilization_percentage": _percent(total - idle, total)} if total > 0 else {}

    def _disk(self) -> dict[str, float]:
        disk = os.statvfs(self._directory)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        free = disk.f_bavail * disk.f_frsize
        return {
            "disk_usage_percentage": _percent(used, used + free),
            "disk_usage_megabytes": used / _MEGABYTE,
            "disk_available_megabytes": free / _MEGABYTE,
        }

    def _step(self) -> int:
        with suppress(StoreError, CorruptData):
            beat = read_record(self._storage, Heartbeat, key=heartbeat_key(0))
            return 0 if beat is None else max(beat.last_step, 0)
        return 0


class _Gpus:
    """Looks at GPUs in a thread of its own, since a driver that hangs must not stop a supervisor.

    Args:
        names: names of the devices, as in CUDA_VISIBLE_DEVICES.

    Attributes:
        values: what was seen last, by name; {} without pynvml.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.values: dict[str, float] = {}
        threading.Thread(target=self._watch, args=(names,), daemon=True).start()

    def _watch(self, names: Sequence[str]) -> None:
        try:
            import pynvml
        except ImportError:
            return
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            handles = [
                pynvml.nvmlDeviceGetHandleByIndex(int(name))
                if name.isdecimal()
                else pynvml.nvmlDeviceGetHandleByUUID(name)
                for name in names
            ]
            while True:
                found: dict[str, float] = {}
                for number, handle in enumerate(handles):
                    gpu = f"gpu_{number}"
                    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                    power = pynvml.nvmlDeviceGetPowerUsage(handle)
                    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
                    found |= {
                        f"{gpu}_utilization_percentage": float(rates.gpu),
                        f"{gpu}_memory_usage_percentage": _percent(memory.used, memory.total),
                        f"{gpu}_memory_usage_megabytes": memory.used / _MEGABYTE,
                        f"{gpu}_power_usage_watts": power / 1e3,
                    }
                self.values = found
                time.sleep(_LOOK)


def _ticks() -> list[int]:
    """Return the time of all cores by kind, from user to steal; guests are part of user."""
    with suppress(OSError, ValueError):
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        return [int(one) for one in line.split()[1:9]]
    return [0] * 8


def _memory() -> dict[str, float]:
    """Return the memory that is in use: not available to a program that asks for it."""
    sizes = [
        1024 * int(value.removesuffix("kB"))
        for name in ("MemTotal", "MemAvailable")
        for value in kernel_values("/proc/meminfo", name)
    ]
    if len(sizes) != 2:
        return {}
    total, available = sizes
    return {
        "system_memory_usage_percentage": _percent(total - available, total),
        "system_memory_usage_megabytes": (total - available) / _MEGABYTE,
    }


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0
