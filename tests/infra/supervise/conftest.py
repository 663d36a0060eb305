"""Real supervisors over real programs, and patience with a limit."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from vinedresser.errors import StillRunning
from vinedresser.infra.supervise.launcher import prepare_run, settle, start
from vinedresser.processes import this_process
from vinedresser.store.records import LaunchRecord, new_run

# On a busy machine; reached by a failing test only.
PATIENCE = 30.0


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Return a function that waits until a condition is true."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE} s"
            time.sleep(0.005)

    return wait


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that prepares a run of Python code, or of ``argv``, and returns where."""

    def prepare(code: str = "", *, name: str = "run", **options: Any) -> Path:
        script = tmp_path / f"{name}.py"
        script.write_text(code, encoding="utf-8")
        options.setdefault("argv", [sys.executable, "-S", str(script)])
        # Processes that a failed test leaves behind end with the tests.
        owner = asdict(options.pop("owner", this_process()))
        launch = LaunchRecord(**{"cwd": str(tmp_path), **options}, owner=owner)
        prepare_run(tmp_path / name, new_run(name), launch)
        return tmp_path / name

    return prepare


@pytest.fixture
def launched(
    prepared: Callable[..., Path],
) -> Iterator[Callable[..., tuple[Path, subprocess.Popen[bytes]]]]:
    """Return a function that prepares and starts a run; returns where, and its supervisor."""
    begun: list[tuple[Path, subprocess.Popen[bytes]]] = []

    def launch(code: str = "", **options: Any) -> tuple[Path, subprocess.Popen[bytes]]:
        directory = prepared(code, **options)
        begun.append((directory, start(directory)))
        return begun[-1]

    yield launch
    for directory, supervisor in begun:
        supervisor.kill()
        supervisor.wait()
        with suppress(StillRunning):
            settle(directory, grace=0.0)
