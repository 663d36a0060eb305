"""The tasks around one training: it is launched, judged, recorded and settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from prefect import allow_failure
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture

from vinedresser.tasks.experiment import Experiment
from vinedresser.tasks.run_place import RunPlace
from vinedresser.tasks.stages import finish, further, judge, launch, record

__all__ = ["Supervision", "complaints", "supervise"]


class Supervision(NamedTuple):
    """The tasks around a training.

    Attributes:
        launched: done when its process is gone.
        finished: done when it is settled, and all the others are done.
        futures: of all.
    """

    launched: PrefectFuture[Any]
    finished: PrefectFuture[Any]
    futures: list[PrefectFuture[Any]]


def supervise(
    place: RunPlace, experiment: Experiment, beside: Sequence[PrefectFuture[Any]] = ()
) -> Supervision:
    """Start a training with its judges and recorder.

    Args:
        place: that has begun.
        experiment: to which it belongs.
        beside: further tasks to wait for before the run is settled.
    """
    groups = tuple(experiment.rules)
    launched = launch.submit(place)
    others = [*beside, *(judge.submit(place, group) for group in groups), record.submit(place)]
    if experiment.run.attach:
        others.append(further.submit(place, groups))
    # A judge that failed or an MLflow that is away must not keep a run from its end.
    before: list[Any] = [allow_failure(future) for future in (launched, *others)]
    finished = finish.submit(place, wait_for=before, return_state=False)
    return Supervision(launched, finished, [launched, *others, finished])


def complaints(states: Sequence[State[Any]]) -> list[str]:
    """Return what the failed among some tasks said, each thing once."""
    failed = (state for state in states if state.is_failed() or state.is_crashed())
    return list(dict.fromkeys(str(state.message) for state in failed))
