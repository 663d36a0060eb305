"""What a flow that trained came to: its runs, and what the attempts in their place did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vinedresser.errors import VinedresserError
from vinedresser.store.storage import Location
from vinedresser.tasks.lifecycle.run_result import RemedyResult, RunResult, TrainResult, run_result
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts
from vinedresser.tasks.remedy.remedying import tell_mlflow

__all__ = ["training_result"]


def training_result(courses: Sequence[RemedyAttempts], problems: Sequence[str]) -> TrainResult:
    """Return what became of all runs, and mark in MLflow those that were begun again.

    Args:
        courses: they are over.
        problems: what went wrong so far.
    """
    outcomes: dict[Location, RunResult] = {}
    failures = list(problems)
    remedied = []
    for course in courses:
        for one in (further for place in course.places for further in (place, *place.additional)):
            try:
                outcomes[one.location] = run_result(one.location)
            except VinedresserError as error:
                failures.append(str(error))
        entry = _remedied(course, outcomes)
        if entry is not None:
            remedied.append(entry)
            try:
                tell_mlflow(entry, course.tracking)
            except VinedresserError as error:
                failures.append(str(error))
    return TrainResult(tuple(outcomes.values()), tuple(failures), tuple(remedied))


def _remedied(
    course: RemedyAttempts, outcomes: Mapping[Location, RunResult]
) -> RemedyResult | None:
    """Return what became of a run that was to be begun again; None where no rule stopped it."""
    runs = [outcomes[place.location] for place in course.places if place.location in outcomes]
    if not course.asked_for or len(runs) < len(course.places) or runs[0].status.by != "rule":
        return None
    return RemedyResult(runs[0], tuple(runs[1:]), course.left)
