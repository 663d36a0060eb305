"""Lives of monitors in parts, which are kept in a file as they end: a killed run loses none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.lives import Scale

__all__ = ["Alarms", "Job", "finished", "jobs_of", "merged"]

Alarms = dict[str, NDArray[np.int64]]
"""First alarms, int64 [lives], by detector; see `first_alarms`."""

# Lives that are lived together.
_LIVES = 20


@dataclass(frozen=True)
class Job:
    """Some lives in a world.

    Args:
        part: list of worlds.
        world: name of the world in it.
        number: of the job in this world, from 0.
        scale: how much.
    """

    part: str
    world: str
    number: int
    scale: Scale


def jobs_of(part: str, worlds: Sequence[tuple[str, Scale]]) -> list[Job]:
    """Return jobs, of which each world has its first before any has its second.

    Args:
        part: list of worlds.
        worlds: name of each, and the scale of all its lives.
    """
    jobs = []
    for world, scale in worlds:
        for number, start in enumerate(range(0, scale.monitors, _LIVES)):
            lives = min(_LIVES, scale.monitors - start)
            peers = min(max(scale.peers - start, 0), lives)
            jobs.append(Job(part, world, number, replace(scale, monitors=lives, peers=peers)))
    return sorted(jobs, key=lambda job: job.number)


def finished(
    jobs: Iterable[Job], work: Callable[[Job], Alarms], file: Path | None, processes: int
) -> Iterator[tuple[Job, Alarms]]:
    """Do jobs in processes, and yield each with its alarms when it is done.

    Args:
        jobs: the jobs.
        work: does one of them; a function of a module.
        file: JSON lines to which finished jobs are added; jobs that it contains are not run again.
        processes: number of processes; 0: yield only what the file has.
    """
    known = {} if file is None or not file.exists() else _read(file)
    missing = []
    for job in jobs:
        if (key := _key(job)) in known:
            yield job, known[key]
        else:
            missing.append(job)
    if not processes:
        return
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(work, job): job for job in missing}
        for future in as_completed(running):
            job, alarms = running[future], future.result()
            if file is not None:
                lists = {name: one.tolist() for name, one in alarms.items()}
                with file.open("a") as stream:
                    stream.write(f"{json.dumps([_key(job), lists])}\n")
            yield job, alarms


def merged(found: Iterable[tuple[Job, Alarms]]) -> dict[str, Alarms]:
    """Return the alarms of all jobs of each world, by its name."""
    lists: dict[str, dict[str, list[NDArray[np.int64]]]] = {}
    for job, alarms in found:
        for name, one in alarms.items():
            lists.setdefault(job.world, {}).setdefault(name, []).append(one)
    return {
        world: {name: np.concatenate(parts) for name, parts in by_name.items()}
        for world, by_name in lists.items()
    }


def _key(job: Job) -> str:
    return json.dumps(asdict(job))


def _read(file: Path) -> dict[str, Alarms]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {
        key: {name: np.array(one, np.int64) for name, one in alarms.items()}
        for key, alarms in lines
    }
