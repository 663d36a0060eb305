"""The batch script of docs/slurm.md: signals as SLURM sends them, exit code and requeue."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.paths import ROOT
from tests.waiting import until
from vinedresser.processes import descendants
from vinedresser.store.reading.reader import open_run

# It marks the processes of a step, and runs the command.
SRUN = '#!/bin/bash\nSTEP=1 exec "$@"\n'
SCONTROL = '#!/bin/bash\necho "$@" >> requeued\n'


def blocks(language: str) -> list[str]:
    text = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@contextmanager
def job(folder: Path, restarts: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the batch script as SLURM does; provide its process."""
    programs = f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": programs, "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": f"{restarts}"}
    process = subprocess.Popen(
        ["bash", "train.sbatch"],
        cwd=folder,
        env={**os.environ, **variables},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def step_processes(batch: int) -> list[int]:
    """Return the processes of the step, which `srun` has started."""
    found = []
    for pid in descendants(batch):
        with suppress(psutil.Error):
            if "STEP" in psutil.Process(pid).environ():
                found.append(pid)
    return found


def steps(run: Path) -> bool:
    """Return whether a training has made some steps."""
    return (run / "heartbeat" / "0.json").exists() and (open_run(run).status.step or 0) > 20


@pytest.mark.slow
def test_a_job_that_is_warned_is_requeued_and_continues(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(blocks("python")[0], encoding="utf-8")
    (tmp_path / "train.sbatch").write_text(blocks("bash")[0], encoding="utf-8")
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    for restarts in (0, 1):
        run = tmp_path / "runs" / f"job-7-{restarts}"
        with job(tmp_path, restarts) as batch:
            until(partial(steps, run), "a training that steps", 240.0)
            warned = step_processes(batch.pid)
            assert len(warned) >= 4, "the command, its judge, the supervisor and the training"
            for pid in warned:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
            assert batch.wait(60) == 99
        status = open_run(run).status
        assert (status.code, status.reason) == (99, "exit code 99 after SIGUSR1")
        assert (run / "report.html").exists()
        requeued = (tmp_path / "requeued").read_text(encoding="utf-8").splitlines()
        assert requeued == ["requeue 7"] * (restarts + 1)
    assert (tmp_path / "checkpoint-7.pt").exists()
