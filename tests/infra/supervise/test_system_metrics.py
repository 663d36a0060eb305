"""The load of the machine is recorded while a run trains."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from vinedresser.infra.supervise.supervisor.system_metrics import SystemMetrics
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import SystemRecord, read_journal

Eventually = Callable[[Callable[[], object]], None]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]


def test_a_run_has_the_load_of_its_machine(launched: Launched, eventually: Eventually) -> None:
    directory, _ = launched("import time; time.sleep(600)")
    eventually((directory / SystemRecord.KEY).exists)
    run = open_run(directory)
    eventually(run.system)
    last = {name: float(column.values[-1]) for name, column in run.system().items()}
    assert run.problems == []
    assert 0 <= last["system/cpu_utilization_percentage"] <= 100
    used, share = (
        last[f"system/system_memory_usage_{unit}"] for unit in ("megabytes", "percentage")
    )
    assert used / share * 100 == pytest.approx(psutil.virtual_memory().total / 1e6)
    disk = psutil.disk_usage(str(directory))
    assert last["system/disk_usage_percentage"] == pytest.approx(disk.percent, abs=5)
    sizes = (last["system/disk_usage_megabytes"], last["system/disk_available_megabytes"])
    assert sum(sizes) == pytest.approx((disk.used + disk.free) / 1e6, rel=0.05)


def sampled(directory: Path, *gpus: str, until: Callable[[SystemMetrics], bool]) -> SystemRecord:
    """Return the record of the time at which a condition holds."""
    faults: list[str] = []
    metrics = SystemMetrics(directory, gpus, faults.append)
    while not until(metrics):
        time.sleep(0.01)
    metrics.tend(float("inf"))
    (found,) = read_journal(LocalStorage(directory), SystemRecord, faults)
    assert faults == []
    return found


def test_the_processor_is_as_busy_as_psutil_says(tmp_path: Path) -> None:
    psutil.cpu_percent(None)
    end = time.monotonic() + 1.0
    found = sampled(tmp_path, until=lambda _: time.monotonic() > end)
    theirs = psutil.cpu_percent(None)
    assert found.values["cpu_utilization_percentage"] == pytest.approx(theirs, abs=20)


def test_the_gpus_that_a_training_sees_are_numbered_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NVMLError(Exception):
        pass

    driver = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda name: {"GPU-a": 7}[name],
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=gpu * 1e9, total=1e10),
        nvmlDeviceGetUtilizationRates=lambda gpu: SimpleNamespace(gpu=10 * gpu),
        nvmlDeviceGetPowerUsage=lambda gpu: gpu * 1000,
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    found = sampled(tmp_path, "3", "GPU-a", until=lambda one: bool(one._gpus and one._gpus.values))
    scales = {
        "utilization_percentage": 10.0,
        "memory_usage_percentage": 10.0,
        "memory_usage_megabytes": 1000.0,
        "power_usage_watts": 1.0,
    }
    assert {name: value for name, value in found.values.items() if name.startswith("gpu_")} == {
        f"gpu_{place}_{name}": scale * number
        for place, number in enumerate((3, 7))
        for name, scale in scales.items()
    }


def test_a_disk_that_refuses_ends_the_records_with_one_sentence(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / SystemRecord.KEY).mkdir()
    metrics = SystemMetrics(tmp_path, (), said.append)
    for later in (1e9, 2e9):
        metrics.tend(later)
    assert len(said) == 1
    assert said[0].startswith("system metrics are no longer recorded: ")
