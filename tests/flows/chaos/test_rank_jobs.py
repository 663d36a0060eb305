"""Jobs of three ranks under accidents at random moments; `make chaos` prints them.

CHAOS_JOBS says how many jobs there are, CHAOS_SEED which accidents.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.flows.chaos import rank_training
from tests.paths import ROOT
from tests.waiting import until
from vinedresser.capture import open_run
from vinedresser.objects import LocalStorage
from vinedresser.processes import marked_processes
from vinedresser.store.records import ExitRecord, read_record

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

_JOBS = int(os.environ.get("CHAOS_JOBS", "24"))
_SEED = int(os.environ.get("CHAOS_SEED", "0"))
_RANKS, _STEPS = 3, 300
_TRAINING = str(rank_training.__file__)
_SUPERVISOR = "vinedresser.infra.supervise.supervisor"
_ENDS = ("stopped", "crashed", "killed")


class Accident(NamedTuple):
    """What happens to a job.

    Attributes:
        word: how the command lines of the processes that it hits begin; "": the command itself.
        number: the signal.
        causes: how the run may end.
    """

    word: str
    number: signal.Signals
    causes: tuple[str, ...]


ACCIDENTS = {
    "a rank is killed": Accident(_TRAINING, signal.SIGKILL, ("killed",)),
    "a rank gets SIGTERM": Accident(_TRAINING, signal.SIGTERM, _ENDS),
    "a rank stands still": Accident(_TRAINING, signal.SIGSTOP, ("finished",)),
    "the supervisor is killed": Accident(_SUPERVISOR, signal.SIGKILL, ("killed",)),
    "the supervisor gets SIGTERM": Accident(_SUPERVISOR, signal.SIGTERM, _ENDS),
    "the judge is killed": Accident("vinedresser.rules.", signal.SIGKILL, ("finished",)),
    "Ctrl-C": Accident("", signal.SIGINT, ("stopped",)),
    "the command is killed": Accident("", signal.SIGKILL, ("stopped", "killed")),
}


class Job:
    """A job of ranks.

    Args:
        folder: its working directory.
        name: name of the run.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.mark = {"CHAOS": f"{folder}/{name}"}
        self.place = folder / "runs" / name
        self.log = folder / f"{name}.log"
        command = [sys.executable, "-m", "vinedresser", "run", "--ranks", str(_RANKS)]
        command += ["--store", "runs", "--name", name, "--rule", "nonfinite"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, _TRAINING, str(_STEPS)],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.mark, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    def left(self) -> dict[int, list[str]]:
        """Return the command lines of the living processes of the job, by id."""
        found = {}
        for pid in marked_processes(f"CHAOS={self.mark['CHAOS']}"):
            try:
                found[pid] = psutil.Process(pid).cmdline()
            except psutil.Error:
                continue
        return found

    def targets(self, accident: Accident) -> list[int]:
        """Return the ids of the living processes that an accident may hit."""
        own = self.process.pid
        if not accident.word:
            return [] if self.process.poll() is not None else [own]
        return sorted(
            pid
            for pid, words in self.left().items()
            if pid != own and any(one.startswith(accident.word) for one in words)
        )

    def strike(self, accident: Accident, draw: random.Random) -> int | None:
        """Make an accident happen; return the id of the process, or None without one."""
        found = self.targets(accident)
        if not found:
            return None
        pid = draw.choice(found)
        try:
            os.kill(pid, accident.number)
        except ProcessLookupError:
            return None
        return pid

    def ended(self) -> ExitRecord | None:
        """Return how the run ended."""
        if not self.place.is_dir():
            return None
        return read_record(LocalStorage(self.place), ExitRecord)

    def end(self) -> None:
        """Kill what is left."""
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Return what prints a line at once."""

    def line(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)  # noqa: T201 (it is what `make chaos` shows)

    return line


def test_whatever_is_killed_a_job_of_ranks_ends_and_says_how(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    draw = random.Random(_SEED)
    kinds: list[str] = []
    while len(kinds) < _JOBS:
        kinds += draw.sample([*ACCIDENTS], len(ACCIDENTS))
    for number, kind in enumerate(kinds[:_JOBS]):
        job = Job(tmp_path, f"job-{number}")
        try:
            say(_play(job, kind, draw))
        finally:
            job.end()


def _play(job: Job, kind: str, draw: random.Random) -> str:
    """Let an accident happen to a job at a random moment, and check what follows."""
    accident, moment = ACCIDENTS[kind], draw.uniform(0.0, 3.0)
    until(lambda: job.targets(accident) or job.process.poll() is not None, "a target", 60)
    time.sleep(moment)
    hit = job.strike(accident, draw)
    if accident.number == signal.SIGSTOP and hit is not None:
        time.sleep(2.0)
        os.kill(hit, signal.SIGCONT)
    begun = time.monotonic()
    what = f"{kind} {moment:.1f} s after its start" if hit is not None else f"{kind}: too late"

    def told() -> str:
        log = job.log.read_text(encoding="utf-8", errors="replace")[-3000:]
        return f"{what}: {job.ended()}, processes left: {job.left()}\n{log}"

    try:
        until(lambda: job.process.poll() is not None, "the command", 60)
        until(lambda: not job.left(), "the processes", 60)
    except AssertionError as error:
        raise AssertionError(f"{error}: {told()}") from error
    seconds = time.monotonic() - begun
    end = job.ended()
    if end is None and hit is not None and not job.place.exists():
        return f"{what}: before the run began"
    assert end is not None, told()
    expected = ("finished",) if hit is None else (*accident.causes, "finished")
    assert end.cause in expected, told()
    assert end.cause == "finished" or end.reason, told()
    run = open_run(job.place)
    assert run.status.state == end.cause, told()
    for rank in run.ranks:
        steps = run.steps("train", rank).tolist()
        assert steps == list(range(len(steps))), told()
        assert len(steps) == _STEPS or end.cause != "finished", told()
    return f"{what}: {end.cause} in {seconds:.1f} s, {end.reason}"
