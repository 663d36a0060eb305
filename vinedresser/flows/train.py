"""Flow `train`: the runs of an experiment in parallel, judged and recorded while they train."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import allow_failure, flow
from prefect.futures import PrefectFuture, wait
from prefect.runtime import flow_run

from vinedresser.tasks.experiment import load_experiment
from vinedresser.tasks.flow_record import forget_flow, remember_flow
from vinedresser.tasks.outcome import Trained, outcome
from vinedresser.tasks.prepare import prepare
from vinedresser.tasks.stages import finish, judge, launch, reconcile, record

__all__ = ["train"]


@flow(name="train", flow_run_name="train {path.stem}")
def train(path: Path, store: Path | None = None, at_once: int | None = None) -> Trained:
    """Run the trainings of an experiment file, at most so many at a time.

    Beside each training a judge per rule group and a recorder run; when a rule stops a run, it is
    recorded with the reason, and the next one takes its place.

    Args:
        path: the experiment file.
        store: takes the place of the file's ``run.store``.
        at_once: takes the place of the file's ``run.at_once``.

    Returns:
        What became of each run, in the order of the file, and what went wrong beside them.

    Raises:
        ConfigError: the file is not right; nothing was started.
        TrackingError: MLflow could not be prepared; nothing was started.
    """
    experiment = load_experiment(path, store=store, at_once=at_once)
    experiment.store.mkdir(parents=True, exist_ok=True)
    reconcile(experiment.store)
    this = remember_flow(experiment.store, str(flow_run.id), str(flow_run.name))
    try:
        directories = prepare(experiment, flow=this.id)
        futures = _start_all(directories, tuple(experiment.rules), experiment.at_once)
        wait(futures)
        return Trained(
            tuple(outcome(directory) for directory in directories), tuple(_problems(futures))
        )
    finally:
        forget_flow(experiment.store, this)


def _start_all(
    directories: Sequence[Path], groups: Sequence[str], at_once: int
) -> list[PrefectFuture[Any]]:
    """Start each run with its judges and recorder as soon as there is a slot for it."""
    slots = threading.Semaphore(at_once)
    futures: list[PrefectFuture[Any]] = []
    for directory in directories:
        slots.acquire()
        launched = launch.submit(directory)
        launched.add_done_callback(lambda _: slots.release())
        beside = [judge.submit(directory, group) for group in groups]
        beside.append(record.submit(directory))
        # A judge that failed or an MLflow that is away must not keep a run from its end.
        before: list[Any] = [allow_failure(future) for future in (launched, *beside)]
        futures += [
            launched,
            *beside,
            finish.submit(directory, wait_for=before, return_state=False),
        ]
    return futures


def _problems(futures: Sequence[PrefectFuture[Any]]) -> list[str]:
    """Return what the failed tasks said."""
    states = [future.state for future in futures]
    failed = (state for state in states if state.is_failed() or state.is_crashed())
    return list(dict.fromkeys(str(state.message) for state in failed))
