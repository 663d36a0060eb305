"""The Prefect tasks of a sweep: follow a trial, and conclude it."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from vinedresser.sweeps.trial import Trial
from vinedresser.tasks.conductor import Conductor
from vinedresser.tasks.run_place import RunPlace
from vinedresser.tasks.trial_course import TrialCourse

__all__ = ["compare", "conclude", "make_trial", "restore"]


@task(name="trial", task_run_name="trial {trial.name}", cache_policy=NO_CACHE)
def make_trial(conductor: Conductor, trial: TrialCourse) -> RunPlace:
    """Make the next run of a trial.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the store refused.
    """
    place = conductor.make_run(trial)
    place.begin()
    return place


@task(name="restore", task_run_name="restore {trial.name}", cache_policy=NO_CACHE)
def restore(trial: TrialCourse) -> bool:
    """Take in what an earlier process of the sweep left of a trial; see `TrialCourse.restore`.

    Raises:
        VinedresserError: a run of it cannot be read.
    """
    return trial.restore()


@task(name="compare", task_run_name="compare {trial.name}", cache_policy=NO_CACHE)
def compare(conductor: Conductor, trial: TrialCourse) -> None:
    """Tell the study what a trial reports, and end the trial when it says so.

    Raises:
        StoreError: the run cannot be read; the training goes on uncompared.
    """
    conductor.follow(trial)


@task(name="conclude", task_run_name="conclude {trial.name}", cache_policy=NO_CACHE)
def conclude(conductor: Conductor, trial: TrialCourse) -> Trial | None:
    """Tell the study how a trial ended; see `Conductor.conclude`.

    Raises:
        VinedresserError: its run cannot be read.
    """
    return conductor.conclude(trial)
