"""Flow `train`: the runs of an experiment in parallel, judged and recorded while they train."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run

from vinedresser.flows.supervision import complaints, supervise
from vinedresser.infra.clusters.cluster import Cluster
from vinedresser.tasks.config.experiment import Experiment, load_experiment
from vinedresser.tasks.lifecycle.prepare import prepare
from vinedresser.tasks.lifecycle.run_result import TrainResult
from vinedresser.tasks.places.experiment_cluster import cluster_of
from vinedresser.tasks.reconcile.flow_record import forget_flow, remember_flow
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts
from vinedresser.tasks.remedy.remedying import courses_of
from vinedresser.tasks.remedy.train_result import training_result
from vinedresser.tasks.stages import begin, correct, reconcile
from vinedresser.tasks.stores import ensure_store, local_state
from vinedresser.tasks.termination import ends_in_order

__all__ = ["train"]


@flow(name="train", flow_run_name="train {path.stem}")
def train(
    path: Path,
    store: Path | str | None = None,
    max_concurrent: int | None = None,
    remedy: int | None = None,
) -> TrainResult:
    """Run the trainings of an experiment file, at most so many at a time.

    Beside each training a judge per rule group and a recorder run; when a rule stops a run, it is
    recorded with the reason, and the next one takes its place. If asked to, it is then begun again
    with the correction that the rule proposes.

    Args:
        path: the experiment file.
        store: takes the place of the file's ``run.store``: a path, or the URL of an object store.
        max_concurrent: takes the place of the file's ``run.max_concurrent``.
        remedy: takes the place of the file's ``remedy.times``: attempts in the place of a run that
            a rule stopped, at the most.

    Returns:
        What became of each run, in the order of the file, and what went wrong beside them.

    Raises:
        ConfigError: the file is not right; nothing was started.
        StoreError: the store refused; nothing was started.
        TrackingError: MLflow could not be prepared; nothing was started.
        TerminationSignal: it was cancelled; its trainings have saved their checkpoint and ended.
    """
    experiment = load_experiment(path, store=store, max_concurrent=max_concurrent, remedy=remedy)
    experiment.refuse_missing_gpus()
    return ends_in_order(lambda: _train(experiment), experiment.store)


def _train(experiment: Experiment) -> TrainResult:
    """Do what `train` does, of a file that has been read."""
    ensure_store(experiment.store)
    reconcile(experiment.store)
    state = local_state(experiment.store)
    this = remember_flow(state, str(flow_run.id), str(flow_run.name))
    try:
        courses = courses_of(prepare(experiment, flow=this.id), experiment)
        with cluster_of(experiment) as cluster:
            trainings = _Trainings(experiment, this.id, cluster)
            trainings.run(courses)
        return training_result(courses, trainings.problems())
    finally:
        forget_flow(state, this)


class _Trainings:
    """The runs of an experiment: as many at the same time as there are slots.

    Args:
        experiment: what they share.
        flow: id of the flow run.
        cluster: on which they train, if not here.
    """

    def __init__(self, experiment: Experiment, flow: str, cluster: Cluster | None) -> None:
        self._experiment = experiment
        self._cluster = cluster
        self._flow = flow
        self._states: list[State[Any]] = []
        self._futures: list[PrefectFuture[Any]] = []
        # A course whose last run is over, judged and recorded; None: a slot is free.
        self._ended: SimpleQueue[RemedyAttempts | None] = SimpleQueue()

    def run(self, courses: Sequence[RemedyAttempts]) -> None:
        """Train in each place, and in those that take a stopped one's, until all are over."""
        waiting = deque(courses)
        free, under_way = self._experiment.max_concurrent, 0
        while waiting or under_way:
            if waiting and free:
                begun = self._begin(waiting.popleft())
                free, under_way = free - begun, under_way + begun
            elif (ended := self._ended.get()) is None:
                free += 1
            else:
                under_way -= 1
                if self._again(ended):
                    waiting.append(ended)

    def problems(self) -> list[str]:
        """Return what the failed tasks said."""
        return complaints([*self._states, *(future.state for future in self._futures)])

    def _begin(self, course: RemedyAttempts) -> bool:
        """Start the last run of a course, if its place can be made ready."""
        # Before anything follows it: what is there until then may be somebody else's.
        ready = begin(course.places[-1], return_state=True)
        self._states.append(ready)
        if ready.is_completed():
            self._start(course)
        return bool(ready.is_completed())

    def _start(self, course: RemedyAttempts) -> None:
        """Start a training with its judges and recorder."""
        around = supervise(course.places[-1], self._experiment, cluster=self._cluster)
        around.launched.add_done_callback(lambda _: self._ended.put(None))
        around.finished.add_done_callback(lambda _: self._ended.put(course))
        self._futures += around.futures

    def _again(self, course: RemedyAttempts) -> bool:
        """Make the run that takes the place of a course's last one, if anything is to be tried."""
        if not self._experiment.remedy.times:
            return False
        state = correct(course, self._experiment, self._flow, return_state=True)
        self._states.append(state)
        return bool(state.is_completed() and state.result())
