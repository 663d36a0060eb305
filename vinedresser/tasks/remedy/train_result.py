"""The result of an experiment: its runs, and the attempts that replaced stopped ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vinedresser.errors import VinedresserError
from vinedresser.infra.services.tracking import set_tags
from vinedresser.objects import Location
from vinedresser.store.records import TrackingRecord
from vinedresser.tasks.lifecycle.run_result import (
    RemedyResult,
    RunResult,
    TrainResult,
    result_or_damage,
)
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts


def train_result(runs: Sequence[RemedyAttempts], problems: Iterable[str]) -> TrainResult:
    """Return the results of all runs, and tag those in MLflow that have attempts.

    Args:
        runs: the runs, which are over.
        problems: what went wrong so far.
    """
    results: dict[Location, RunResult] = {}
    failures = list(problems)
    remedied = []
    for attempts in runs:
        for one in (each for place in attempts.places for each in (place, *place.additional)):
            results[one.location] = result_or_damage(one.location)
            if results[one.location].status.state == "unreadable":
                failures.append(results[one.location].status.reason)
        remedy = _remedy_result(attempts, results)
        if remedy is not None:
            remedied.append(remedy)
            try:
                _tag(remedy, attempts.tracking)
            except VinedresserError as error:
                failures.append(str(error))
    restarted = tuple(place.location for attempts in runs for place in attempts.restarted)
    return TrainResult(tuple(results.values()), tuple(failures), tuple(remedied), restarted)


def _remedy_result(
    attempts: RemedyAttempts, results: Mapping[Location, RunResult]
) -> RemedyResult | None:
    """Return the result of a run's attempts; None if no rule stopped it."""
    runs = [results[place.location] for place in attempts.places if place.location in results]
    if not attempts.asked_for or len(runs) < len(attempts.places) or runs[0].status.by != "rule":
        return None
    return RemedyResult(runs[0], tuple(runs[1:]), attempts.left)


def _tag(remedy: RemedyResult, tracking: TrackingRecord) -> None:
    """Tag the MLflow run of a stopped run with the result of its attempts."""
    if not remedy.attempts:
        return
    tags = {"remedy.attempts": len(remedy.attempts), "remedy.left": remedy.left or None}
    if remedy.cure is not None:
        tags |= {"remedy.cured_by": remedy.cure.name, "remedy.cure": remedy.change}
    set_tags(tracking.uri, tracking.run_id, tags)
