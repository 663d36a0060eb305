"""Flow `prune`: rounds of pruning and fine-tuning, until a target is reached or a limit broken."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Failed

from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.catalog.stores import ensure_store
from vinedresser.tasks.config.prune_file import Pruning, load_pruning
from vinedresser.tasks.lifecycle.prepare import RunMaker, fetch_channels
from vinedresser.tasks.lifecycle.run_queue import run_queue
from vinedresser.tasks.parents.dated import dated as make_dated
from vinedresser.tasks.process_lock import process_lock
from vinedresser.tasks.pruning.fetching import fetch_weights
from vinedresser.tasks.pruning.pruning_result import (
    PruningResult,
    begin_pruning,
    finish_pruning,
    leave_pruning_artifact,
)
from vinedresser.tasks.pruning.round_queue import RoundQueue
from vinedresser.tasks.reconcile.flow_record import flow_recorded
from vinedresser.tasks.stages import STAGES, correct, reconcile
from vinedresser.tasks.termination import ends_in_order

__all__ = ["prune", "run_pruning"]


@flow(name="prune", flow_run_name="prune {path.stem}")
def prune(
    path: Path,
    store: Path | str | None = None,
    resume: bool = False,
    branch: str | None = None,
    dated: bool = False,
) -> PruningResult:
    """Remove filters from a trained model, round by round, and fine-tune it after each.

    Each round is a training with its judges and recorder. A rule stops one that goes wrong; with
    remedies enabled, it begins again with the correction that the rule proposes. The result is the
    best round within the limits.

    Args:
        path: the prune file.
        store: overrides ``run.store``: a path, or the URL of an object store.
        resume: resume the pruning in the store.
        branch: "round-3": begin with that round of the pruning with this name.
        dated: make a separate pruning, NAME-TIME, for each flow run, named for its scheduled time;
            if it has begun because the flow run is retried, resume it.

    Returns:
        The rounds and what went wrong beside them. If the pruning as a whole failed
        (`PruningResult.problem`), Prefect's state is failed, too.

    Raises:
        ConfigError: the file is invalid, or the pruning in the store is another one; nothing was
            started.
        AlreadyARun: the store has this pruning, and `resume` is not set.
        StillRunning: another process runs it.
        StoreError: the store refused a request; nothing was started.
        TrackingError: MLflow could not be prepared; nothing was started.
        TerminationSignal: it was cancelled; its training has ended.
    """
    pruning = load_pruning(path, store=store, branch=branch)
    if dated:
        pruning = make_dated(pruning, str(flow_run.id), flow_run.scheduled_start_time)
        resume = resume or pruning.has_begun
    return run_pruning(pruning, resume=resume)


def run_pruning(pruning: Pruning, *, resume: bool) -> PruningResult:
    """Run the pruning of a prune file that has been read; see `prune`."""
    pruning.experiment.refuse_missing()
    result = ends_in_order(lambda: _prune(pruning, resume), pruning.experiment.store)
    if not result.problem:
        return result
    # Prefect unwraps a state that a flow returns.
    return cast(PruningResult, Failed(message=result.problem, data=result))


def _prune(pruning: Pruning, resume: bool) -> PruningResult:
    experiment = pruning.experiment
    with flow_recorded(experiment.store) as flow_id:
        channels = fetch_channels(experiment)
        ensure_store(experiment.store)
        with process_lock(pruning.lock, "pruning"):
            remember_tracking(experiment.store, experiment.tracking_uri)
            reconcile(experiment.store)
            fetch_weights(pruning.table, pruning.experiment, pruning.fetched_weights)
            tracking = begin_pruning(pruning, resume=resume)
            maker = RunMaker(experiment, channels, tracking, flow=flow_id)
            queue = RoundQueue(pruning, maker, partial(correct, maker=maker))
            run_queue(queue, experiment, STAGES)
            pruned = finish_pruning(queue, tracking, queue.problems)
            leave_pruning_artifact(pruning, pruned, tracking)
            return pruned
