"""The tasks around one training: it is launched, judged, recorded and settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from prefect import allow_failure
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture

from vinedresser.infra.clusters.cluster import Cluster
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.lifecycle.additional_runs import follow_additional_runs
from vinedresser.tasks.places.cluster_place import ClusterPlace
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.stages import finish, judge, launch, record

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
    place: RunPlace,
    experiment: Experiment,
    beside: Sequence[Callable[[], None]] = (),
    *,
    cluster: Cluster | None = None,
) -> Supervision:
    """Start a training with its judges and recorder.

    Args:
        place: that has begun.
        experiment: to which it belongs.
        beside: what else follows the run to its end, before it is settled.
        cluster: on which it trains, and is judged; None: it does so here.
    """
    groups = tuple(experiment.rules)
    follow = [*beside]
    others: list[PrefectFuture[Any]] = []
    if isinstance(place, ClusterPlace):
        place.cluster, place.groups, place.attach = cluster, groups, experiment.run.attach
    else:
        others += [judge.submit(place, group) for group in groups]
        if experiment.run.attach:
            follow.append(partial(follow_additional_runs, place, groups))
    launched = launch.submit(place)
    others.append(record.submit(place, follow))
    # A judge that failed or an MLflow that is away must not keep a run from its end.
    before: list[Any] = [allow_failure(future) for future in (launched, *others)]
    finished = finish.submit(place, wait_for=before, return_state=False)
    return Supervision(launched, finished, [launched, *others, finished])


def complaints(states: Sequence[State[Any]]) -> list[str]:
    """Return what the failed among some tasks said, each thing once."""
    failed = (state for state in states if state.is_failed() or state.is_crashed())
    return list(dict.fromkeys(str(state.message) for state in failed))
