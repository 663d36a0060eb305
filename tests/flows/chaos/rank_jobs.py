"""Jobs of ranks under accidents."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.flows.chaos import rank_training
from tests.paths import ROOT
from tests.waiting import until
from vinedresser.objects import LocalStorage
from vinedresser.processes import marked_processes
from vinedresser.store.records import ExitRecord, read_record

__all__ = ["SUPERVISOR", "TRAINING", "Accident", "Job"]

TRAINING = str(rank_training.__file__)
SUPERVISOR = "vinedresser.infra.supervise.supervisor"


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


class Job:
    """A job of ranks.

    Args:
        folder: its working directory.
        name: name of the run.
        arguments: of the command that runs it.
    """

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.mark = {"CHAOS": f"{folder}/{name}"}
        self.place = folder / "runs" / name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vinedresser", *arguments],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.mark, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """The end of what its command has said, and what is left of it."""
        log = self.log.read_text(encoding="utf-8", errors="replace")[-3000:]
        return f"{self.ended()}, processes left: {self.left()}\n{log}"

    def await_end(self) -> float:
        """Wait until nothing of it is left; return the seconds that it took."""
        begun = time.monotonic()
        try:
            until(lambda: self.process.poll() is not None, "the command", 60)
            until(lambda: not self.left(), "the processes", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.said}") from error
        return time.monotonic() - begun

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
