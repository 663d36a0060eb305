"""Runs in the place of stopped ones: made when those are over, and told of in MLflow at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vinedresser.infra.launcher import request_stop
from vinedresser.infra.tracking import set_tags
from vinedresser.store.records import TrackingRecord, read_record
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.prepare import prepare_one
from vinedresser.tasks.lifecycle.run_result import RemedyResult
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts

__all__ = ["begin_again", "courses_of", "tell_mlflow"]


def courses_of(places: Sequence[RunPlace], experiment: Experiment) -> list[RemedyAttempts]:
    """Return the course of each run, none of which has begun.

    Raises:
        StoreError: a run cannot be read.
    """
    courses = []
    for place, spec in zip(places, experiment.specs, strict=True):
        tracking = read_record(LocalStorage(place.directory), TrackingRecord)
        assert tracking is not None, "it was prepared"
        courses.append(RemedyAttempts(place, spec, experiment.remedy, tracking))
    return courses


def begin_again(course: RemedyAttempts, experiment: Experiment, *, flow: str) -> RunPlace | None:
    """Make the run that takes the place of the last one of a course; it is not started.

    Args:
        course: its last run is over.
        experiment: to which it belongs.
        flow: id of the flow run that it belongs to.

    Returns:
        Its place; None where nothing is to be tried, which the course then says.

    Raises:
        VinedresserError: the last run cannot be read, or the store or MLflow refused.
    """
    attempt = course.next()
    if attempt is None:
        return None
    if INTERRUPTED.is_set():
        course.left = INTERRUPTED.reason
        return None
    parent = course.tracking
    # All attempts are shown under the first run: they are to be set beside it.
    tracking = replace(parent, run_id="", settled=False, parent=parent.run_id)
    place = prepare_one(experiment, attempt.spec, tracking, flow=flow, remedy=attempt.remedy)
    if INTERRUPTED.is_set():
        # Whoever asked all runs to stop may have done so before there was this one.
        request_stop(place.directory, reason=INTERRUPTED.reason)
    course.begun(place, attempt)
    return place


def tell_mlflow(remedied: RemedyResult, tracking: TrackingRecord) -> None:
    """Mark a run that was begun again with what came of it.

    Args:
        remedied: what came of it.
        tracking: the run's MLflow run.

    Raises:
        TrackingError: MLflow's database or server refused, or is away.
    """
    if not remedied.attempts:
        return
    tags = {"remedy.attempts": len(remedied.attempts), "remedy.left": remedied.left or None}
    if remedied.cure is not None:
        tags |= {"remedy.cured_by": remedied.cure.name, "remedy.cure": remedied.change}
    set_tags(tracking.uri, tracking.run_id, tags)
