"""The further trainings of a script: judged and recorded like the first, each as a run of its own.

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
from vinedresser.infra.launcher import request_stop
from vinedresser.store.records import (
    ExitRecord,
    StopRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.lifecycle.judging import run_judge
from vinedresser.tasks.lifecycle.recording import record_metrics
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["accompany", "equip", "equip_additional", "follow_additional_runs"]

# Seconds between two looks for a further training, and for a stop of one.
_LOOK = 0.1
# Judges and recorders at work at the same time; those of a training that is over wait for nothing.
_AT_ONCE = 8


def accompany(
    place: RunPlace, groups: Sequence[str], *, record: bool = True
) -> list[BaseException]:
    """Judge and record the further trainings of a script until it has ended.

    Args:
        place: of its first run, which is about to be started.
        groups: of rules that judge.
        record: send their metrics to MLflow, if the first run is tracked there.

    Returns:
        What went wrong.
    """
    directory = place.directory
    jobs: list[Future[None]] = []
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="further") as pool:
        over = False
        while not over:
            # Looked up first: what has begun by then is found below.
            over = (directory / ExitRecord.KEY).is_file()
            for further in place.look(partial(equip, directory)):
                jobs += [pool.submit(job) for job in _jobs(further, groups, record)]
            if not over:
                _pass_stop_on(place)
                time.sleep(_LOOK)
    return [error for job in jobs if (error := job.exception()) is not None]


def follow_additional_runs(place: RunPlace, groups: Sequence[str]) -> None:
    """Judge and record the further trainings of a script until it has ended; see `accompany`.

    Raises:
        VinedresserError: a judge or recorder of one of them failed; the trainings went on.
    """
    if failures := accompany(place, groups):
        raise failures[0]


def equip(first: Path, further: Path) -> None:
    """Give a further run what its first one has of rules and tracking, unless it has it.

    Args:
        first: directory of the run for which the script was launched.
        further: directory of a further one.

    Raises:
        StoreError: a directory cannot be read or written.
    """
    origin, storage = LocalStorage(first), LocalStorage(further)
    for key in origin.list("rules/"):
        if key.endswith(".json"):
            storage.put(key, [origin.get(key)])
    tracking = read_record(origin, TrackingRecord)
    if tracking is not None and not storage.exists(TrackingRecord.KEY):
        write_record(storage, replace(tracking, run_id="", settled=False))


def equip_additional(first: Path) -> list[Path]:
    """Equip all further runs of a script, and return them.

    Args:
        first: directory of the run for which the script was launched.

    Raises:
        StoreError: a directory cannot be read or written.
    """
    runs = additional_runs(first)
    for further in runs:
        equip(first, further)
    return runs


def _jobs(further: RunPlace, groups: Sequence[str], record: bool) -> list[Callable[[], None]]:
    """Return what goes on beside a further training."""
    directory, location = further.directory, further.location
    judges = [partial(run_judge, directory, group, location=location) for group in groups]
    tracked = record and (directory / TrackingRecord.KEY).is_file()
    return [*judges, partial(record_metrics, further)] if tracked else [*judges]


def _pass_stop_on(place: RunPlace) -> None:
    """Have the script stopped when one of its further trainings is asked to end."""
    for further in place.additional:
        stop = read_record(LocalStorage(further.directory), StopRecord)
        if stop is not None:
            request_stop(
                place.directory,
                by=stop.by,
                reason=f"{further.name}: {stop.reason}",
                rule=stop.rule,
                step=stop.step,
                finding=stop.finding,
            )
