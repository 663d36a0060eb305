"""Flow `train`: the runs of an experiment in parallel, judged and recorded while they train."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

from prefect import flow

from vinedresser.infra.catalog.stores import ensure_store
from vinedresser.tasks.config.experiment import Experiment, load_experiment
from vinedresser.tasks.lifecycle.prefect_page import state_of_runs
from vinedresser.tasks.lifecycle.prepare import RunMaker, fetch_channels, prepare_mlflow
from vinedresser.tasks.lifecycle.run_queue import run_queue
from vinedresser.tasks.lifecycle.run_result import TrainResult
from vinedresser.tasks.lifecycle.worker_run import work_order
from vinedresser.tasks.reconcile.flow_record import flow_recorded
from vinedresser.tasks.remedy.attempt_queue import AttemptQueue, make_runs
from vinedresser.tasks.remedy.train_result import train_result
from vinedresser.tasks.stages import STAGES, correct, reconcile
from vinedresser.tasks.termination import ends_in_order

__all__ = ["run_trainings", "train"]


@flow(name="train", flow_run_name="train {path.stem}")
def train(
    path: Path,
    store: Path | str | None = None,
    max_concurrent: int | None = None,
    remedy: int | None = None,
) -> TrainResult:
    """Run the trainings of an experiment file.

    A judge per rule group and a recorder accompany each training. A run that a rule stops is
    recorded with the reason, and the next run gets its slot; with remedies enabled, it is replaced
    by an attempt with the correction that the rule proposes.

    Args:
        store: overrides ``run.store``: a path, or the URL of an object store.
        max_concurrent: overrides ``run.max_concurrent``.
        remedy: overrides ``remedy.times``: maximum number of attempts to replace a stopped run.

    Returns:
        The runs in the order of the file, and what went wrong beside them. If one did not finish,
        the name of Prefect's state says so.

    Raises:
        ConfigError: the file is invalid; nothing was started.
        StoreError: the store refused a request; nothing was started.
        TrackingError: MLflow could not be prepared; nothing was started.
        TerminationSignal: it was cancelled; its trainings have saved their checkpoints and ended.
    """
    return run_trainings(
        load_experiment(path, store=store, max_concurrent=max_concurrent, remedy=remedy)
    )


def run_trainings(experiment: Experiment) -> TrainResult:
    """Run the trainings of an experiment file that has been read; see `train`."""
    experiment.refuse_missing()
    trained = ends_in_order(lambda: _train(experiment), experiment.store)
    # Prefect unwraps a state that a flow returns.
    return cast(TrainResult, state_of_runs((run.status for run in trained.lasting), trained))


def _train(experiment: Experiment) -> TrainResult:
    with flow_recorded(experiment.store) as flow_id:
        channels = fetch_channels(experiment)
        ensure_store(experiment.store)
        # First: left runs with the tracking URI of this file are this user's.
        tracking = prepare_mlflow(
            experiment.store, experiment.tracking_uri, experiment.tracking_experiment
        )
        reconcile(experiment.store)
        with work_order(experiment) as order:
            maker = RunMaker(experiment, channels, tracking, flow=flow_id, order=order)
            runs = make_runs(experiment, maker)
            queue = AttemptQueue(runs, partial(correct, maker=maker))
            run_queue(queue, experiment, STAGES)
            return train_result(runs, queue.problems)
