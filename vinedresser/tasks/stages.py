"""The Prefect tasks of flows: each calls one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger

from vinedresser.errors import StillRunning
from vinedresser.explain.formatting import count
from vinedresser.objects import LocalStorage, Location
from vinedresser.plain_text import visible
from vinedresser.preflight.record import PreflightRecord
from vinedresser.store.records import read_record
from vinedresser.tasks.lifecycle.prefect_page import leave_run_artifact, state_of_place
from vinedresser.tasks.lifecycle.prepare import RunMaker
from vinedresser.tasks.lifecycle.run_result import emit_result
from vinedresser.tasks.lifecycle.supervision import Stages
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.reconcile.reconcile import Reconciled
from vinedresser.tasks.reconcile.reconcile import reconcile as reconcile_store
from vinedresser.tasks.remedy.attempt_queue import make_attempt
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts

__all__ = ["STAGES", "check", "correct", "finish", "judge", "launch", "reconcile", "record"]

_PLAIN = Stages()


@task(name="reconcile", cache_policy=NO_CACHE)
def reconcile(store: Location) -> list[Reconciled]:
    """Settle what a crash left behind in a store; see `tasks.reconcile.reconcile`."""
    settled = reconcile_store(store)
    get_run_logger().info("%s settled after a crash in %s", count(len(settled), "run"), store)
    return settled


@task(name="check", task_run_name="check {place.name}", cache_policy=NO_CACHE)
def check(place: RunPlace, strict: bool) -> None:
    """Check the first steps of the training prepared in a place.

    Raises:
        LaunchError: the program does not exist, or the result cannot be read.
        StoreError: the directory cannot be read or written.
    """
    _PLAIN.check(place, strict)
    found = read_record(LocalStorage(place.directory), PreflightRecord)
    if found is not None:
        log = get_run_logger()
        log.info("pre-flight: %s", found.summary)
        for one in found.suspicious:
            log.warning("pre-flight: %s: %s", one.check, visible(one.evidence))


@task(name="launch", task_run_name="launch {place.name}", cache_policy=NO_CACHE)
def launch(place: RunPlace) -> State[Any]:
    """Start the training prepared in a place and wait for its end, which names the final state.

    Its directory says how it ended: Prefect would keep a result as long as the flow runs.

    Raises:
        LaunchError: the training could not be started.
        StoreError: the store refused a request.
    """
    get_run_logger().info("training starts in %s", place.directory)
    _PLAIN.launch(place)
    return state_of_place(place)


@task(name="judge", task_run_name="judge {place.name} {group}", cache_policy=NO_CACHE)
def judge(place: RunPlace, group: str) -> None:
    """Judge a run by one group of rules until it is over.

    Raises:
        JudgeFailed: the judge failed; the training continues unjudged by this group.
    """
    _PLAIN.judge(place, group)
    get_run_logger().info("judged to its end by the rules of group %s", group)


@task(name="record", task_run_name="record {place.name}", cache_policy=NO_CACHE)
def record(place: RunPlace, jobs: Sequence[Callable[[], None]]) -> None:
    """Send the metrics of a run to MLflow, and run the other jobs that follow it to its end.

    A task for each job would cost a short training as much as its judge.

    Raises:
        TrackingError: MLflow did not accept the metrics, even some time after the end of the run.
        StoreError: the store refused a request.
        VinedresserError: another job failed.
    """
    _PLAIN.follow(place, jobs)
    get_run_logger().info("followed to its end, with its metrics in MLflow")


@task(name="finish", task_run_name="finish {place.name}", cache_policy=NO_CACHE)
def finish(place: RunPlace) -> None:
    """Write the reports of a run and of the additional runs of its script, and settle them.

    Raises:
        TrackingError: MLflow's database or server refused or is unavailable.
        StillRunning: a run is not yet complete in its store.
        StoreError: the store refused a request.
    """
    _PLAIN.finish(place)
    if missing := [one.name for one in (place, *place.additional) if one not in place.arrived]:
        raise StillRunning(
            f"{', '.join(missing)}: not yet complete in the store, and MLflow does not know the "
            "end; `vinedresser reconcile` completes both"
        )
    for one in (place, *place.additional):
        if not one.removed:
            leave_run_artifact(one)
            get_run_logger().info("settled %s, with its report", one.location)
            emit_result(one.location)


@task(name="remedy", task_run_name="remedy {attempts.name}", cache_policy=NO_CACHE)
def correct(attempts: RemedyAttempts, maker: RunMaker) -> bool:
    """Make the run that replaces the last one; return False if nothing is to be tried.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the store refused a request.
        StillRunning: the last run is not yet complete in its store.
    """
    made = make_attempt(attempts, maker)
    get_run_logger().info("%s", "another attempt" if made else attempts.left or "nothing to try")
    return made


STAGES = Stages(check, launch, judge, record, finish)
