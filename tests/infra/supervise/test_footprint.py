"""A supervisor stands beside every training, and must cost next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Eventually = Callable[[Callable[[], object]], None]
Prepared = Callable[..., Path]
Launched = Callable[..., tuple[Path, subprocess.Popen[bytes]]]


PROBE = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
"""
SUPERVISE = """
import runpy
runpy.run_module("vinedresser.infra.supervise.supervisor", run_name="__main__", alter_sys=True)
"""


def packages_after(code: str, *arguments: str | Path) -> set[str]:
    """Return the top-level packages that a Python has loaded when it has run code."""
    result = subprocess.run(
        [sys.executable, "-c", PROBE + code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return {name.partition(".")[0] for name in result.stderr.split()}


def test_a_whole_run_needs_the_standard_library_only(prepared: Prepared) -> None:
    directory = prepared("print('done')")
    loaded = packages_after(SUPERVISE, directory)
    assert (directory / "exit.json").exists()
    # What .pth files of the environment load in every interpreter is not its doing.
    assert loaded - set(sys.stdlib_module_names) - packages_after("") == {"vinedresser"}


@pytest.mark.thorough
def test_a_waiting_supervisor_is_small_and_idle(
    launched: Launched, eventually: Eventually, tmp_path: Path
) -> None:
    directory, supervisor = launched("open('ready', 'w'); import time; time.sleep(600)")
    eventually((tmp_path / "ready").exists)
    eventually((directory / "supervisor.json").exists)
    status = Path(f"/proc/{supervisor.pid}/status").read_text()
    assert int(status.split("VmHWM:")[1].split()[0]) < 20 * 1024, "KiB"
    assert int(status.split("Threads:")[1].split()[0]) == 1
    before = cpu_seconds(supervisor.pid)
    begun = time.monotonic()
    eventually(lambda: time.monotonic() - begun > 1.0)
    assert cpu_seconds(supervisor.pid) - before <= 0.05


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
