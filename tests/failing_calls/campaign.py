"""Failures of the n-th system call, as SQLite tests them, for n = 1, 2, 3 and so on."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.paths import ROOT

__all__ = ["EVERY_ERROR", "Case", "Failure", "failing_calls", "run_campaign"]

_SOURCE = Path(__file__).with_name("failing_calls.c")


class Failure(NamedTuple):
    """Which calls fail, and how.

    Attributes:
        error: errno.
        onwards: all later calls fail as well.
        stride: calls from one child to the next; 1 tries each.
    """

    error: int
    onwards: bool
    stride: int = 1


# A signal interrupts one call; the other failures come once or stay.
EVERY_ERROR = [
    Failure(error, onwards)
    for error in (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES)
    for onwards in (False, True)
] + [Failure(errno.EINTR, onwards=False)]


class Case(NamedTuple):
    """A run of a scenario in which a call failed.

    Attributes:
        folder: the folder below which calls failed.
        at: number of the first call that failed.
        failure: how it failed.
        call: name of that call; empty in the last run of a failure, in which none failed.
        result: what the scenario returned; None if it raised an error or was killed.
        stderr: what it wrote to stderr and stdout.
        code: exit code; 1 if it raised an error, -9 if it took too long and was killed.
    """

    folder: Path
    at: int
    failure: Failure
    call: str
    result: Any
    stderr: str
    code: int

    def __str__(self) -> str:
        after = " and all later ones" if self.failure.onwards else ""
        name = errno.errorcode[self.failure.error]
        return f"call {self.at} ({self.call}){after}: {name}\n{self.stderr}"


def failing_calls(folder: Path) -> Path:
    """Return the compiled library; the test is skipped if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "failing_calls.so"
    options = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror")
    subprocess.run([compiler, *options, "-o", library, _SOURCE, "-ldl"], check=True)
    return library


def run_campaign(
    scenario: str,
    library: Path,
    folder: Path,
    failures: Sequence[Failure] = EVERY_ERROR,
    *,
    limit: float = 60.0,
) -> Iterator[Case]:
    """Run a scenario with each failure, and yield each run.

    Args:
        scenario: ``module:function``; the function takes the folder and returns a JSON value.
        library: the result of `failing_calls`.
        folder: folder for the runs.
        failures: the failures.
        limit: seconds after which a run is killed.
    """
    cases = json.dumps([[each.error, each.onwards, each.stride] for each in failures])
    command = [sys.executable, "-m", "tests.failing_calls.zygote", *scenario.split(":")]
    environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, folder, cases, str(limit)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    for line in done.stdout.splitlines():
        said = json.loads(line)
        place = Path(said["folder"])
        failure = Failure(said["error"], said["onwards"])
        stderr = place.with_suffix(".err").read_text(errors="replace")
        yield Case(place, said["at"], failure, said["call"], said["result"], stderr, said["code"])
