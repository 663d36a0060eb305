"""Flow `train`: the runs of an experiment in parallel, judged and recorded while they train."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prefect import allow_failure, flow
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture, wait
from prefect.runtime import flow_run

from vinedresser.errors import VinedresserError
from vinedresser.tasks.experiment import Experiment, load_experiment
from vinedresser.tasks.flow_record import forget_flow, remember_flow
from vinedresser.tasks.outcome import Outcome, Trained, outcome
from vinedresser.tasks.prepare import prepare
from vinedresser.tasks.run_place import RunPlace
from vinedresser.tasks.stages import begin, finish, further, judge, launch, reconcile, record
from vinedresser.tasks.store import ensure_store, local_state

__all__ = ["train"]


@flow(name="train", flow_run_name="train {path.stem}")
def train(path: Path, store: Path | str | None = None, at_once: int | None = None) -> Trained:
    """Run the trainings of an experiment file, at most so many at a time.

    Beside each training a judge per rule group and a recorder run; when a rule stops a run, it is
    recorded with the reason, and the next one takes its place.

    Args:
        path: the experiment file.
        store: takes the place of the file's ``run.store``: a path, or the URL of an object store.
        at_once: takes the place of the file's ``run.at_once``.

    Returns:
        What became of each run, in the order of the file, and what went wrong beside them.

    Raises:
        ConfigError: the file is not right; nothing was started.
        StoreError: the store refused; nothing was started.
        TrackingError: MLflow could not be prepared; nothing was started.
    """
    experiment = load_experiment(path, store=store, at_once=at_once)
    ensure_store(experiment.store)
    reconcile(experiment.store)
    state = local_state(experiment.store)
    this = remember_flow(state, str(flow_run.id), str(flow_run.name))
    try:
        places = prepare(experiment, flow=this.id)
        states = _train_all(places, experiment)
        outcomes, unread = _outcomes(places)
        return Trained(tuple(outcomes), (*_problems(states), *unread))
    finally:
        forget_flow(state, this)


def _train_all(places: Sequence[RunPlace], experiment: Experiment) -> list[State[Any]]:
    """Train in each place as soon as there is a slot for it; return how all that went."""
    slots = threading.Semaphore(experiment.at_once)
    states: list[State[Any]] = []
    futures: list[PrefectFuture[Any]] = []
    for place in places:
        slots.acquire()
        # Before anything follows it: what is there until then may be somebody else's.
        ready = begin(place, return_state=True)
        states.append(ready)
        if ready.is_completed():
            futures += _start(place, experiment, slots.release)
        else:
            slots.release()
    wait(futures)
    return states + [future.state for future in futures]


def _start(
    place: RunPlace, experiment: Experiment, on_end: Callable[[], None]
) -> list[PrefectFuture[Any]]:
    """Start a training with its judges and recorder."""
    groups = tuple(experiment.rules)
    launched = launch.submit(place)
    launched.add_done_callback(lambda _: on_end())
    beside: list[PrefectFuture[Any]] = [judge.submit(place, group) for group in groups]
    beside.append(record.submit(place))
    if experiment.run.attach:
        beside.append(further.submit(place, groups))
    # A judge that failed or an MLflow that is away must not keep a run from its end.
    before: list[Any] = [allow_failure(future) for future in (launched, *beside)]
    return [launched, *beside, finish.submit(place, wait_for=before, return_state=False)]


def _outcomes(places: Sequence[RunPlace]) -> tuple[list[Outcome], list[str]]:
    """Return what became of the runs, and of which of them it could not be read."""
    outcomes, unread = [], []
    for place in places:
        for one in (place, *place.further):
            try:
                outcomes.append(outcome(one.location))
            except VinedresserError as error:
                unread.append(str(error))
    return outcomes, unread


def _problems(states: Sequence[State[Any]]) -> list[str]:
    """Return what the failed tasks said."""
    failed = (state for state in states if state.is_failed() or state.is_crashed())
    return list(dict.fromkeys(str(state.message) for state in failed))
