"""Accidents while a job of ranks begins again after a rank failed; `make chaos` prints them.

CHAOS_RESTARTS says how many jobs there are, CHAOS_SEED which accidents.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.flows.chaos.rank_jobs import SUPERVISOR, TRAINING, Accident, Job
from tests.waiting import until
from vinedresser.capture import open_run
from vinedresser.store.reading.reader import Run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

_JOBS = int(os.environ.get("CHAOS_RESTARTS", "8"))
_SEED = int(os.environ.get("CHAOS_SEED", "0"))
_STEPS, _FAIL, _RESTARTS = 300, 110, 2
_HOST = "vinedresser.infra.supervise.hosts"

# By name: the launcher, and the accident with the ends that the last run may have.
ACCIDENTS = {
    "a rank is killed": ("local", Accident(TRAINING, signal.SIGKILL, ("finished",))),
    "the supervisor is killed": ("local", Accident(SUPERVISOR, signal.SIGKILL, ("finished",))),
    "the flow is killed": ("local", Accident("", signal.SIGKILL, ("stopped", "killed"))),
    "Ctrl-C": ("local", Accident("", signal.SIGINT, ("stopped",))),
    "a process of a host is killed": ("torchrun", Accident(_HOST, signal.SIGKILL, ("finished",))),
    "a rank of a host is killed": ("torchrun", Accident(TRAINING, signal.SIGKILL, ("finished",))),
    "the supervisor of hosts is killed": (
        "torchrun",
        Accident(SUPERVISOR, signal.SIGKILL, ("finished",)),
    ),
    "the flow above hosts is killed": (
        "torchrun",
        Accident("", signal.SIGKILL, ("stopped", "killed")),
    ),
}


def experiment(name: str, launcher: str) -> str:
    """Return an experiment file whose training fails and begins again."""
    return f"""
        [run]
        name = "{name}"
        command = ["python", "{TRAINING}", "{_STEPS}"]
        store = "runs-{name}"
        ranks = 2
        launcher = "{launcher}"
        grace = 3.0
        parameters = {{ fail = {_FAIL} }}
        [remedy]
        times = 0
        restarts = {_RESTARTS}
        resume = "resume"
        [rules]
        preset = "none"
    """


def test_nothing_is_left_behind_or_lost_when_a_restart_meets_an_accident(
    tmp_path: Path, say: Callable[[str], None], mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    draw = random.Random(_SEED)
    for number, kind in enumerate(islice(cycle(ACCIDENTS), _JOBS)):
        launcher, accident = ACCIDENTS[kind]
        name = f"job-{number}"
        (tmp_path / f"{name}.toml").write_text(experiment(name, launcher), encoding="utf-8")
        job = Job(tmp_path, name, "train", f"{name}.toml")
        store = tmp_path / f"runs-{name}"
        try:
            what = _strike(job, store / f"{name}-restart-1", kind, accident, draw)
            seconds = job.await_end()
            vinedresser("reconcile", str(store), cwd=tmp_path, code=0)
            runs = {place.name: open_run(place) for place in sorted(store.glob("job-*"))}
            assert _is_complete(runs, accident.causes), f"{what}: {_told(runs)}\n{job.said}"
            recorded = {one: entry["status"] for one, entry in mlflow_runs(store).items()}
            assert recorded.keys() == runs.keys(), f"{what}: {recorded}"
            assert "RUNNING" not in recorded.values(), f"{what}: {recorded}"
        finally:
            job.end()
        say(f"{what}: {_told(runs)}, all ended after {seconds:.1f} s")


def _strike(job: Job, again: Path, kind: str, accident: Accident, draw: random.Random) -> str:
    """Let an accident happen at a random moment after a restart began; return it in words."""

    def over() -> bool:
        return job.process.poll() is not None

    until(lambda: again.exists() or over(), "a restart", 120)
    moment = draw.uniform(0.0, 3.0)
    time.sleep(moment)
    until(lambda: job.strike(accident, draw) or over(), "a target", 60)
    return f"{kind} {moment:.1f} s after a restart began"


def _is_complete(runs: dict[str, Run], causes: tuple[str, ...]) -> bool:
    """Return whether all runs have ended as they may, and have each step that they trained."""
    *earlier, last = runs.values()
    steps = {
        (run.path, rank): run.steps("train", rank).tolist()
        for run in runs.values()
        for rank in run.ranks
    }
    trained = len(last.steps("train", 0)) + _begun(last)
    return (
        1 <= len(earlier) <= _RESTARTS
        and earlier[0].status.reason.endswith("ValueError: a damaged record")
        and all(run.status.state in ("crashed", "killed") for run in earlier)
        and last.status.state in (*causes, "finished")
        and all(one == list(range(len(one))) for one in steps.values())
        and (trained == _STEPS or last.status.state != "finished")
    )


def _begun(run: Run) -> int:
    """Return the number of steps that were done before a run began."""
    origin = run.info.parameters.get("resume")
    return int(Path(origin).read_text(encoding="utf-8")) if origin else 0


def _told(runs: dict[str, Run]) -> str:
    return ", ".join(
        f"{name} {run.status.state} from step {_begun(run)} to "
        f"{_begun(run) + len(run.steps('train', 0))} ({run.status.reason})"
        for name, run in runs.items()
    )
