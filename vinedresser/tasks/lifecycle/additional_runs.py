"""Judge and record the additional runs of a script: one for each training after its first.

The script is one program: a rule that stops one of its trainings stops all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from vinedresser.capture.attach.launching import additional_runs
from vinedresser.infra.catalog.run_notes import stored_tracking
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.objects import LocalStorage
from vinedresser.store.records import (
    ExitRecord,
    StopRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.tasks.lifecycle.judging import run_judge
from vinedresser.tasks.lifecycle.mlflow_metrics import record_metrics
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["equip_additional", "follow_additional_runs"]

# Seconds between two looks for an additional run or a request to stop one.
_LOOK = 0.1
# Judges and recorders at work at the same time; those of a run that is over finish at once.
_MOST_JOBS = 8


def follow_additional_runs(place: RunPlace, groups: Sequence[str], *, record: bool = True) -> None:
    """Judge and record the additional runs of a script until it has ended.

    Args:
        place: place of the script's first run, which is about to be launched.
        groups: rule groups that judge.
        record: send their metrics to MLflow, if the first run is tracked there.

    Raises:
        VinedresserError: a judge or recorder failed; the trainings continued.
    """
    directory = place.directory
    jobs: list[Future[None]] = []
    with ThreadPoolExecutor(_MOST_JOBS, thread_name_prefix="additional") as pool:
        over = False
        while not over:
            # Checked first: the search below then finds every run that has begun.
            over = (directory / ExitRecord.KEY).is_file() or place.removed
            for one in place.find_additional(partial(_equip, directory)):
                jobs += [pool.submit(job) for job in _jobs(one, groups, record)]
            if not over:
                _forward_stop(place)
                time.sleep(_LOOK)
    for job in jobs:
        job.result()


def equip_additional(first: Path) -> list[Path]:
    """Equip all additional runs of a script with its rules and tracking, and return them.

    Args:
        first: directory of the run for which the script was launched.

    Raises:
        StoreError: a directory cannot be read or written.
    """
    runs = additional_runs(first)
    for run in runs:
        _equip(first, run)
    return runs


def _equip(first: Path, additional: Path) -> None:
    """Copy the rules and tracking of a script's first run to an additional one."""
    origin, storage = LocalStorage(first), LocalStorage(additional)
    for key in origin.list("rules/"):
        if key.endswith(".json"):
            storage.put(key, [origin.get(key)])
    tracking = stored_tracking(first, origin)
    if tracking is not None and not storage.exists(TrackingRecord.KEY):
        write_record(storage, replace(tracking, run_id="", settled=False))


def _jobs(place: RunPlace, groups: Sequence[str], record: bool) -> list[Callable[[], None]]:
    """Return the jobs that follow an additional run until it is over."""
    directory, location = place.directory, place.location
    judges = [partial(run_judge, directory, group, location=location) for group in groups]
    tracked = record and (directory / TrackingRecord.KEY).is_file()
    return [*judges, partial(record_metrics, place)] if tracked else [*judges]


def _forward_stop(place: RunPlace) -> None:
    """Request that the script stops if one of its additional runs is asked to end."""
    for one in place.additional:
        stop = read_record(LocalStorage(one.directory), StopRecord)
        if stop is not None:
            request_stop(
                place.directory,
                by=stop.by,
                reason=f"{one.name}: {stop.reason}",
                rule=stop.rule,
                step=stop.step,
                finding=stop.finding,
            )
