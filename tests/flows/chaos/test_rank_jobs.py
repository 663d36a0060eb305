"""Jobs of three ranks under accidents at random moments; `make chaos` prints them.

CHAOS_JOBS says how many jobs there are, CHAOS_SEED which accidents.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.chaos.rank_jobs import SUPERVISOR, TRAINING, Accident, Job
from tests.waiting import until
from vinedresser.capture import open_run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

_JOBS = int(os.environ.get("CHAOS_JOBS", "24"))
_SEED = int(os.environ.get("CHAOS_SEED", "0"))
_RANKS, _STEPS = 3, 300
_ENDS = ("stopped", "crashed", "killed")


ACCIDENTS = {
    "a rank is killed": Accident(TRAINING, signal.SIGKILL, ("killed",)),
    "a rank gets SIGTERM": Accident(TRAINING, signal.SIGTERM, _ENDS),
    "a rank stands still": Accident(TRAINING, signal.SIGSTOP, ("finished",)),
    "the supervisor is killed": Accident(SUPERVISOR, signal.SIGKILL, ("killed",)),
    "the supervisor gets SIGTERM": Accident(SUPERVISOR, signal.SIGTERM, _ENDS),
    "the judge is killed": Accident("vinedresser.rules.", signal.SIGKILL, ("finished",)),
    "Ctrl-C": Accident("", signal.SIGINT, ("stopped",)),
    "the command is killed": Accident("", signal.SIGKILL, ("stopped", "killed")),
}


def test_whatever_is_killed_a_job_of_ranks_ends_and_says_how(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    draw = random.Random(_SEED)
    kinds: list[str] = []
    while len(kinds) < _JOBS:
        kinds += draw.sample([*ACCIDENTS], len(ACCIDENTS))
    for number, kind in enumerate(kinds[:_JOBS]):
        name = f"job-{number}"
        options = ["--ranks", str(_RANKS), "--store", "runs", "--name", name, "--rule", "nonfinite"]
        job = Job(tmp_path, name, "run", *options, TRAINING, str(_STEPS))
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
    what = f"{kind} {moment:.1f} s after its start" if hit is not None else f"{kind}: too late"
    seconds = job.await_end()
    end = job.ended()
    if end is None and hit is not None and not job.place.exists():
        return f"{what}: before the run began"
    assert end is not None, f"{what}: {job.said}"
    expected = ("finished",) if hit is None else (*accident.causes, "finished")
    assert end.cause in expected, f"{what}: {job.said}"
    assert end.cause == "finished" or end.reason, f"{what}: {job.said}"
    run = open_run(job.place)
    assert run.status.state == end.cause, f"{what}: {job.said}"
    for rank in run.ranks:
        steps = run.steps("train", rank).tolist()
        assert steps == list(range(len(steps))), f"{what}: {job.said}"
        assert len(steps) == _STEPS or end.cause != "finished", f"{what}: {job.said}"
    return f"{what}: {end.cause} in {seconds:.1f} s, {end.reason}"
