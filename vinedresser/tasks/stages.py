"""The Prefect tasks of a training, each one call: reconcile, launch, judge, record, finish."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from vinedresser.infra.launcher import settle, start
from vinedresser.infra.run_directory import ExitRecord
from vinedresser.tasks.judging import run_judge
from vinedresser.tasks.reconcile import Reconciled
from vinedresser.tasks.reconcile import reconcile as reconcile_store
from vinedresser.tasks.recording import send_metrics
from vinedresser.tasks.settle import settle_run

__all__ = ["finish", "judge", "launch", "reconcile", "record"]


@task(name="reconcile", cache_policy=NO_CACHE)
def reconcile(store: Path) -> list[Reconciled]:
    """Put right what a crash left behind in a store; see `vinedresser.tasks.reconcile`."""
    return reconcile_store(store)


@task(name="launch", task_run_name="launch {directory.name}", cache_policy=NO_CACHE)
def launch(directory: Path) -> ExitRecord:
    """Start the training prepared in a run directory, and return how it ended.

    Raises:
        LaunchError: it could not be started.
        StoreError: the store refused.
    """
    start(directory).wait()
    # Mostly there is nothing to settle; there is when the supervisor itself was killed.
    return settle(directory)


@task(name="judge", task_run_name="judge {directory.name} {group}", cache_policy=NO_CACHE)
def judge(directory: Path, group: str) -> None:
    """Judge a run by one group of rules until it is over.

    Raises:
        JudgeFailed: the judge failed; the training goes on unjudged by this group.
    """
    run_judge(directory, group)


@task(name="record", task_run_name="record {directory.name}", cache_policy=NO_CACHE)
def record(directory: Path) -> None:
    """Send the metrics of a run to MLflow as they come, until the run is over.

    Raises:
        TrackingError: MLflow took them not, even some time after the run had ended.
    """
    send_metrics(directory)


@task(name="finish", task_run_name="finish {directory.name}", cache_policy=NO_CACHE)
def finish(directory: Path) -> None:
    """Write the report of a run that is over, and settle it in MLflow.

    Raises:
        TrackingError: MLflow's database or server refused, or is away.
    """
    settle_run(directory)
