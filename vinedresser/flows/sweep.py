"""Flow `sweep`: trials side by side, stopped by rules and by comparison."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import cast

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Failed

from vinedresser.errors import ConfigError
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.catalog.stores import ensure_store
from vinedresser.tasks.config.sweep_file import Sweep, load_sweep
from vinedresser.tasks.lifecycle.earlier_runs import adopt_living
from vinedresser.tasks.lifecycle.prepare import fetch_channels
from vinedresser.tasks.lifecycle.run_queue import run_queue
from vinedresser.tasks.lifecycle.worker_run import work_order
from vinedresser.tasks.parents.dated import dated as make_dated
from vinedresser.tasks.pruning.fetching import fetch_weights
from vinedresser.tasks.reconcile.flow_record import flow_recorded
from vinedresser.tasks.stages import STAGES, reconcile
from vinedresser.tasks.sweeping.digest import send_digest
from vinedresser.tasks.sweeping.sweep_result import (
    SweepResult,
    begin_sweep,
    finish_sweep,
    leave_sweep_artifact,
    sweep_result,
)
from vinedresser.tasks.sweeping.sweep_runner import SweepRunner, TrialQueue
from vinedresser.tasks.termination import ends_in_order

__all__ = ["run_search", "sweep"]


@flow(name="sweep", flow_run_name="sweep {path.stem}")
def sweep(
    path: Path,
    store: Path | str | None = None,
    max_concurrent: int | None = None,
    resume: bool = False,
    dated: bool = False,
    *,
    retry_failed: bool = False,
    join: bool = False,
) -> SweepResult:
    """Search for the best configuration.

    Each trial is a training with its judges and recorder. A rule stops a broken trial, the study
    one that is worse than others. A crashed trial begins again a limited number of times; a failed
    one ends nothing else, unless the first trials all fail for the same reason.

    Args:
        path: the sweep file.
        store: overrides ``run.store``: a path, or the URL of an object store.
        max_concurrent: overrides ``run.max_concurrent``.
        resume: resume the sweep in the store.
        dated: make a separate sweep, NAME-TIME, for each flow run, named for its scheduled time;
            if it has begun because the flow run is retried, resume it.
        retry_failed: try the failed trials of the sweep in the store again.
        join: run trials of the sweep in the store beside the processes that run it, or resume it.

    Returns:
        The trials and what went wrong beside them. If the sweep as a whole failed
        (`SweepResult.problem`), Prefect's state is failed, too.

    Raises:
        ConfigError: the file is invalid, or the sweep in the store is another one; nothing was
            started.
        AlreadyARun: the store has this sweep, and `resume` is not set.
        StillRunning: another process runs it.
        StoreError: the store refused a request; nothing was started.
        TrackingError: MLflow could not be prepared; nothing was started.
        TerminationSignal: it was cancelled; its trials have saved their checkpoints and ended.
    """
    searched = load_sweep(path, store=store, max_concurrent=max_concurrent)
    if dated:
        searched = make_dated(searched, str(flow_run.id), flow_run.scheduled_start_time)
        resume = resume or searched.has_begun
    return run_search(searched, resume=resume, retry_failed=retry_failed, join=join)


def run_search(
    searched: Sweep, *, resume: bool, retry_failed: bool, join: bool = False
) -> SweepResult:
    """Run the search of a sweep file that has been read; see `sweep`."""
    searched.check_start(retry_failed=retry_failed, join=join)
    result = ends_in_order(
        lambda: _search(searched, resume, retry_failed, join), searched.experiment.store
    )
    if not result.problem:
        return result
    # Prefect unwraps a state that a flow returns.
    return cast(SweepResult, Failed(message=result.problem, data=result))


def _search(searched: Sweep, resume: bool, retry_failed: bool, join: bool) -> SweepResult:
    experiment = searched.experiment
    ensure_store(experiment.store)
    if join and not searched.has_begun:
        raise ConfigError(f"{searched.state}: no sweep to join; omit --join")
    with (
        closing(searched.study(searched.lock, join=join)) as study,
        flow_recorded(experiment.store) as flow_id,
    ):
        # Without another process, it is resumed.
        resume, join = resume or join, not study.hosts()
        if resume and not join:
            # Before anything else: a training continues without its flow for a minute only.
            adopt_living(experiment.store)
        channels = fetch_channels(experiment)
        remember_tracking(experiment.store, experiment.tracking_uri)
        if not join:
            reconcile(experiment.store)
        if searched.table is not None and not join:
            fetch_weights(searched.table, experiment, searched.fetched_weights)
        tracking = begin_sweep(searched, resume=resume, join=join)
        with study.turn():
            if searched.known is not None:
                study.learn(searched.known.trials)
            if retry_failed:
                study.retry_failed()
        with work_order(experiment) as order:
            runner = SweepRunner(searched, channels, study, tracking, flow=flow_id, order=order)
            queue = TrialQueue(runner)
            run_queue(queue, experiment, STAGES)
            while runner.await_others():
                run_queue(queue, experiment, STAGES)
        runner.finish()
        swept = sweep_result(runner, study, tracking, queue.problems)
        if swept.left:
            return swept
        if join:
            tracking = begin_sweep(searched, resume=True)
        swept = finish_sweep(searched, swept, tracking)
        swept = swept.with_problems(send_digest(searched, swept))
        leave_sweep_artifact(searched, swept, tracking)
        return swept
