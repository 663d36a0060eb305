"""Flow `sweep`: trials side by side, cut off by rules and by comparison."""

from __future__ import annotations

from collections import deque
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import cast

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Failed

from vinedresser.errors import VinedresserError
from vinedresser.flows.supervision import Supervision, complaints, supervise
from vinedresser.infra.clusters.cluster import Cluster
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.config.sweep_file import Sweep, load_sweep
from vinedresser.tasks.lifecycle.earlier_runs import adopt_living
from vinedresser.tasks.places.experiment_cluster import cluster_of
from vinedresser.tasks.reconcile.flow_record import forget_flow, remember_flow
from vinedresser.tasks.stages import reconcile
from vinedresser.tasks.stores import ensure_store
from vinedresser.tasks.sweeping.sweep_record import JOURNAL
from vinedresser.tasks.sweeping.sweep_result import (
    SweepResult,
    begin_sweep,
    finish_sweep,
    has_begun,
)
from vinedresser.tasks.sweeping.sweep_runner import SweepRunner
from vinedresser.tasks.sweeping.trial_runs import TrialRuns
from vinedresser.tasks.termination import ends_in_order

__all__ = ["sweep"]


@flow(name="sweep", flow_run_name="sweep {path.stem}")
def sweep(
    path: Path,
    store: Path | str | None = None,
    max_concurrent: int | None = None,
    resume: bool = False,
    dated: bool = False,
) -> SweepResult:
    """Search for the best configuration, at most so many trials at a time.

    Each trial is a training with its judges and recorder. A rule ends one that is broken, the study
    one that is worse than others. A trial that crashes is begun again a bounded number of times;
    one that fails ends nothing but itself, unless the first trials all fail for one reason.

    Args:
        path: the sweep file.
        store: takes the place of the file's ``run.store``: a path, or the URL of an object store.
        max_concurrent: takes the place of the file's ``run.max_concurrent``.
        resume: go on with the sweep that the store has.
        dated: make a sweep of its own for each time that Prefect has scheduled, NAME-TIME; one that
            has begun, since its flow run is retried, is gone on with.

    Returns:
        What became of the trials, and what went wrong beside them; in a failed state, where the
        sweep as a whole came to nothing (`SweepResult.problem`), so that Prefect says so too.

    Raises:
        ConfigError: the file is not right, or the sweep in the store is another; nothing was
            started.
        AlreadyARun: the store has this sweep, and it is not to be gone on with.
        StillRunning: another process runs it.
        StoreError: the store refused; nothing was started.
        TrackingError: MLflow could not be prepared; nothing was started.
        TerminationSignal: it was cancelled; its trials have saved their checkpoint and ended.
    """
    mark = f"{flow_run.scheduled_start_time:%Y%m%dT%H%M%SZ}" if dated else ""
    searched = load_sweep(path, store=store, max_concurrent=max_concurrent, mark=mark)
    searched.experiment.refuse_missing_gpus()
    goes_on = resume or (dated and has_begun(searched))
    swept = ends_in_order(lambda: _search(searched, goes_on), searched.experiment.store)
    if not swept.problem:
        return swept
    # Of a state that is returned Prefect hands on what is in it.
    return cast(SweepResult, Failed(message=swept.problem, data=swept))


def _search(searched: Sweep, resume: bool) -> SweepResult:
    """Do what `sweep` does, of a file that has been read."""
    experiment = searched.experiment
    place = experiment.store
    ensure_store(place)
    study = searched.study(searched.state / JOURNAL)
    try:
        if resume:
            # Before anything else: what trains on does so for a minute only.
            adopt_living(place)
        reconcile(place)
        this = remember_flow(searched.state, str(flow_run.id), str(flow_run.name))
        try:
            tracking = begin_sweep(searched, resume=resume)
            conductor = SweepRunner(searched, study, tracking, flow=this.id)
            with cluster_of(experiment) as cluster:
                trials = _Trials(conductor, experiment, cluster)
                trials.run()
            conductor.finish()
            swept = SweepResult(
                name=searched.name,
                store=place,
                trials=tuple(conductor.trials()),
                best=tuple(conductor.best()),
                importance=study.importance(),
                over=conductor.over,
                problem=conductor.problem,
                problems=tuple(trials.problems()),
                mlflow_run=tracking.parent,
            )
            return finish_sweep(searched, swept)
        finally:
            forget_flow(searched.state, this)
    finally:
        study.close()


class _Trials:
    """The trials of a sweep: as many at the same time as there are slots.

    Args:
        conductor: of the sweep.
        experiment: what they share.
        cluster: on which they train, if not here.
    """

    def __init__(
        self, conductor: SweepRunner, experiment: Experiment, cluster: Cluster | None
    ) -> None:
        self._conductor = conductor
        self._cluster = cluster
        self._experiment = experiment
        # What went wrong beside the trials, each thing once; their tasks are not kept.
        self._problems: dict[str, None] = {}
        # A trial whose run is settled, and the tasks around it; None: a slot is free.
        self._ended: SimpleQueue[tuple[TrialRuns, Supervision] | None] = SimpleQueue()
        self._again: deque[TrialRuns] = deque()

    def run(self) -> None:
        """Begin trials until there are no more, and see all of them to their end."""
        slots = self._experiment.max_concurrent
        free, under_way = slots, 0
        while True:
            # Trials that wait to be settled are few: what they tell decides on the next.
            trial = self._next() if free and under_way < 2 * slots else None
            if trial is not None:
                begun = self._begin(trial)
                free, under_way = free - begun, under_way + begun
            elif not under_way:
                return
            elif (ended := self._ended.get()) is None:
                free += 1
            else:
                under_way -= 1
                trial, around = ended
                self._problems |= dict.fromkeys(complaints([one.state for one in around.futures]))
                self._conclude(trial)

    def problems(self) -> list[str]:
        """Return what the failed tasks said."""
        return list(self._problems)

    def _next(self) -> TrialRuns | None:
        return self._again.popleft() if self._again else self._conductor.next()

    def _begin(self, trial: TrialRuns) -> bool:
        """Start the next run of a trial, if it can be made and the trial is not over already."""
        if trial.earlier and self._was_over(trial):
            return False
        if not trial.adopted:
            try:
                self._conductor.make_run(trial)
            except VinedresserError as error:
                self._give_up(trial, error)
                return False
        compare = partial(self._conductor.follow, trial)
        around = supervise(trial.places[-1], self._experiment, [compare], cluster=self._cluster)
        around.launched.add_done_callback(lambda _: self._ended.put(None))
        around.finished.add_done_callback(lambda _: self._ended.put((trial, around)))
        return True

    def _was_over(self, trial: TrialRuns) -> bool:
        """Conclude a trial that an earlier process began, if it is over already."""
        try:
            over = self._conductor.restore(trial)
        except VinedresserError as error:
            self._give_up(trial, error)
            return True
        if over:
            self._conclude(trial)
        return over

    def _conclude(self, trial: TrialRuns) -> None:
        """Tell the study of a trial whose run is over, or have it begun again."""
        try:
            told = self._conductor.conclude(trial)
        except VinedresserError as error:
            self._give_up(trial, error)
            return
        if told is None:
            self._again.append(trial)

    def _give_up(self, trial: TrialRuns, error: VinedresserError) -> None:
        self._problems[str(error)] = None
        self._conductor.give_up(trial, error)
