"""Supervise a prepared run: launch it, judge, record and compare it, then settle it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from vinedresser.errors import CorruptData, RunRemoved, VinedresserError
from vinedresser.infra.supervise.gpus import NO_GPUS, VISIBLE_GPUS, lease
from vinedresser.infra.supervise.launch_values import with_values
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.objects import LocalStorage
from vinedresser.preflight.launching import check_program
from vinedresser.preflight.record import PreflightRecord
from vinedresser.rules.registry import RULES
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.records import (
    LaunchRecord,
    RunRecord,
    StopRecord,
    known_keys,
    read_record,
    write_record,
)
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.additional_runs import follow_additional_runs
from vinedresser.tasks.lifecycle.judging import run_judge
from vinedresser.tasks.lifecycle.mlflow_metrics import record_metrics
from vinedresser.tasks.lifecycle.settle import settle_place
from vinedresser.tasks.places.run_place import REMOVED, RunPlace

__all__ = ["Attendance", "Stages", "side_by_side", "supervise"]

# Stands where the name of a rule would, in the stop record of a run that the checks stop.
_RULE = "preflight"


def _check_first(place: RunPlace, *, strict: bool) -> None:
    """Check the first steps of a prepared training, and record the result in its run.

    The built-in rules of the run judge them; others are for its judges, in processes of their own.
    Nothing is recorded if the run is asked to stop meanwhile.

    Args:
        place: place of the run, ready to be launched.
        strict: if a check is suspicious, stop the run before its training begins.

    Raises:
        LaunchError: the program does not exist, or the result cannot be read.
        StoreError: the directory cannot be read or written.
    """
    storage = LocalStorage(place.directory)
    stored, run = read_record(storage, LaunchRecord), read_record(storage, RunRecord)
    if stored is None or run is None:
        missing = (LaunchRecord if stored is None else RunRecord).KEY
        raise CorruptData(f"{place.directory}: has no {missing}")
    launch = with_values(place.directory, stored)

    def stopping() -> bool:
        return storage.exists(StopRecord.KEY)

    gpus = lease(launch.own_gpus, stopping) if launch.own_gpus else NO_GPUS
    try:
        devices = {VISIBLE_GPUS: ",".join(gpus.names)} if launch.own_gpus else {}
        found = check_program(
            launch.argv,
            run,
            _built_in_rules(storage),
            cwd=launch.cwd,
            environment={**launch.environment, **devices},
            given_up=stopping,
        )
    finally:
        gpus.close()
    if stopping():
        return
    record = PreflightRecord.of(found)
    write_record(storage, record)
    if strict and record.suspicious:
        first = record.suspicious[0]
        request_stop(
            place.directory, by="rule", rule=_RULE, reason=f"{first.check}: {first.evidence}"
        )


def _built_in_rules(storage: LocalStorage) -> dict[str, dict[str, Any]]:
    """Return the settings of the built-in rules that judge a run, by name.

    Raises:
        StoreError: the storage refused.
    """
    found: dict[str, dict[str, Any]] = {}
    for key in known_keys(storage, "rules", []):
        if not key.endswith(".json"):
            continue
        try:
            table = parse_json(storage.get(key))["rules"]
            found |= {name: dict(table[name]) for name in table if name in RULES}
        except DAMAGE as error:
            raise CorruptData(f"{storage.location}/{key}: not valid rules: {error}") from error
    return found


@dataclass(frozen=True)
class Attendance:
    """What accompanies a run while it trains.

    Attributes:
        groups: rule groups that judge it, each in a process.
        record: send its metrics to MLflow.
        additional: judge and record the additional runs of its script, too.
        compare: follows the run to its end, for a sweep that compares it with others.
        preflight: check its first steps before it trains; "strict": a suspicion stops it.
        pause: seconds until it begins.
    """

    groups: Sequence[str] = ()
    record: bool = True
    additional: bool = True
    compare: Callable[[], None] | None = None
    preflight: bool | Literal["strict"] = False
    pause: float = 0.0


class Stages(NamedTuple):
    """The stages of a run; flows replace them with Prefect tasks that call these.

    Attributes:
        check: check the first steps of the training; whether a suspicion stops it.
        launch: start the training and wait for its end.
        judge: judge the run by one rule group until it is over.
        follow: run jobs side by side that follow the run until it is over.
        finish: bring the run to its store and settle it.
    """

    check: Callable[[RunPlace, bool], object] = lambda place, strict: _check_first(
        place, strict=strict
    )
    launch: Callable[[RunPlace], object] = lambda place: place.train()
    judge: Callable[[RunPlace, str], object] = lambda place, group: run_judge(
        place.directory, group, location=place.location
    )
    follow: Callable[[RunPlace, Sequence[Callable[[], None]]], object] = lambda _, jobs: (
        side_by_side(jobs)
    )
    finish: Callable[[RunPlace], object] = settle_place


def supervise(
    place: RunPlace,
    attendance: Attendance,
    stages: Stages,
    launched: Callable[[], object] = lambda: None,
) -> list[BaseException]:
    """Take a prepared run through its lifecycle; return the errors of its stages.

    A stage that fails keeps no other from its work: the run is always settled. If the directory of
    the run was removed, that is the only error.

    Args:
        place: place of the run, ready to be launched.
        attendance: what accompanies it.
        stages: how each stage is carried out.
        launched: called when the training has ended, before the run is settled.
    """
    made = not place.removed
    INTERRUPTED.wait(attendance.pause)
    if INTERRUPTED.is_set():
        # All runs may have been asked to stop before this one existed.
        request_stop(place.directory, reason=INTERRUPTED.reason)
    with ThreadPoolExecutor(
        thread_name_prefix="stage", max_workers=len(attendance.groups) + 2
    ) as pool:

        def submit(stage: Callable[..., object], *arguments: object) -> Future[object]:
            # Each thread needs a context of its own, by which Prefect knows the flow run.
            return pool.submit(copy_context().run, stage, place, *arguments)

        launch = submit(partial(_launch, stages, attendance))
        launch.add_done_callback(lambda _: launched())
        running = [launch, *(submit(stages.judge, group) for group in attendance.groups)]
        if jobs := _jobs(place, attendance):
            running.append(submit(stages.follow, jobs))
        errors = [future.exception() for future in running]
        errors.append(submit(stages.finish).exception())
    if made and place.removed:
        # Whoever read or wrote the run has failed for this reason.
        return [RunRemoved(REMOVED.format(place.directory))]
    return [error for error in errors if error is not None]


def _launch(stages: Stages, attendance: Attendance, place: RunPlace) -> None:
    """Check and launch a run; if the launch fails, record it for those who follow the run.

    Raises:
        VinedresserError: the check or the launch failed; a run that could not be checked has
            trained.
    """
    unchecked: VinedresserError | None = None
    try:
        if attendance.preflight:
            try:
                stages.check(place, attendance.preflight == "strict")
            except VinedresserError as error:
                unchecked = error
        stages.launch(place)
    except BaseException as error:
        place.abandon(f"it was not started: {error}")
        raise
    if unchecked is not None:
        raise unchecked


def _jobs(place: RunPlace, attendance: Attendance) -> list[Callable[[], None]]:
    """Return the jobs that follow a run until it is over."""
    jobs: list[Callable[[], None]] = []
    if attendance.record:
        jobs.append(partial(record_metrics, place))
    if attendance.compare is not None:
        jobs.append(attendance.compare)
    if attendance.additional:
        job = partial(follow_additional_runs, place, attendance.groups, record=attendance.record)
        jobs.append(job)
    return jobs


def side_by_side(jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs at the same time and wait for all of them.

    Args:
        jobs: at least one job.

    Raises:
        VinedresserError: several jobs failed; the message joins theirs.
        Exception: the error of the only job that failed.
    """
    with ThreadPoolExecutor(len(jobs), thread_name_prefix="job") as pool:
        futures = [pool.submit(job) for job in jobs]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if len(failures) > 1:
        messages = dict.fromkeys(str(failure) for failure in failures)
        raise VinedresserError("; ".join(messages)) from failures[0]
    if failures:
        raise failures[0]
