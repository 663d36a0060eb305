"""The Prefect tasks of a training, each one call: reconcile, begin, launch, judge and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from prefect import task
from prefect.cache_policies import NO_CACHE

from vinedresser.errors import StillRunning
from vinedresser.infra.launcher import request_stop
from vinedresser.store.storage import Location
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.judging import run_judge
from vinedresser.tasks.lifecycle.recording import record_metrics, send_metrics
from vinedresser.tasks.lifecycle.settle import settle_run
from vinedresser.tasks.lifecycle.side_by_side import side_by_side
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.reconcile.reconcile import Reconciled
from vinedresser.tasks.reconcile.reconcile import reconcile as reconcile_store
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts
from vinedresser.tasks.remedy.remedying import begin_again

__all__ = ["begin", "correct", "finish", "judge", "launch", "reconcile", "record"]


@task(name="reconcile", cache_policy=NO_CACHE)
def reconcile(store: Location) -> list[Reconciled]:
    """Settle what a crash left behind in a store; see `tasks.reconcile.reconcile`."""
    return reconcile_store(store)


@task(name="begin", task_run_name="begin {place.name}", cache_policy=NO_CACHE)
def begin(place: RunPlace) -> None:
    """Get the place of a run ready, and begin its upload where it belongs on an object store.

    Raises:
        AlreadyARun: the store has a run there.
        StoreError: the store refused.
    """
    if INTERRUPTED.is_set():
        # Whoever asked all runs to stop may have done so before there was this one.
        request_stop(place.directory, reason=INTERRUPTED.reason)
    place.begin()


@task(name="launch", task_run_name="launch {place.name}", cache_policy=NO_CACHE)
def launch(place: RunPlace) -> None:
    """Start the training prepared in a place, and wait for its end.

    How it ended is in its directory: Prefect would keep a result for as long as the flow runs.

    Raises:
        LaunchError: it could not be started.
        StoreError: the store refused.
    """
    place.train()


@task(name="judge", task_run_name="judge {place.name} {group}", cache_policy=NO_CACHE)
def judge(place: RunPlace, group: str) -> None:
    """Judge a run by one group of rules until it is over.

    Raises:
        JudgeFailed: the judge failed; the training goes on unjudged by this group.
    """
    run_judge(place.directory, group, location=place.location)


@task(name="record", task_run_name="record {place.name}", cache_policy=NO_CACHE)
def record(place: RunPlace, beside: Sequence[Callable[[], None]] = ()) -> None:
    """Send the metrics of a run to MLflow as they come, until the run is over.

    Args:
        place: of the run.
        beside: what else follows it meanwhile. A task of its own would cost each short training as
            much as its judge.

    Raises:
        TrackingError: MLflow took them not, even some time after the run had ended.
        StoreError: the store refused.
        VinedresserError: what else follows it failed.
    """
    side_by_side([partial(record_metrics, place), *beside])


@task(name="finish", task_run_name="finish {place.name}", cache_policy=NO_CACHE)
def finish(place: RunPlace) -> None:
    """Write the reports of runs that are over, and settle them in MLflow.

    These are the run in a place and the further ones of its script.

    Raises:
        TrackingError: MLflow's database or server refused, or is away.
        StillRunning: not all of a run is in its store.
        StoreError: the store refused.
    """
    arrived = place.complete()
    for one in arrived:
        if not one.recorded:
            # The store or MLflow was away for longer than a recorder waits.
            send_metrics(one.location)
        settle_run(one.location)
    if missing := [one.name for one in (place, *place.additional) if one not in arrived]:
        raise StillRunning(
            f"{', '.join(missing)}: not all is in the store yet, so MLflow does not know the end; "
            "`vinedresser reconcile` sees to both"
        )


@task(name="remedy", task_run_name="remedy {course.name}", cache_policy=NO_CACHE)
def correct(course: RemedyAttempts, experiment: Experiment, flow: str) -> RunPlace | None:
    """Make the run that takes the place of the last one of a course, if anything is to be tried.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the store refused.
        StillRunning: not all of the last run is in its store.
    """
    return begin_again(course, experiment, flow=flow)
