"""Flow `sweep`: trials side by side, cut off by rules and by comparison."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run

from vinedresser.flows.supervision import complaints, supervise
from vinedresser.tasks.conductor import Conductor
from vinedresser.tasks.experiment import Experiment
from vinedresser.tasks.flow_record import forget_flow, remember_flow
from vinedresser.tasks.stages import reconcile
from vinedresser.tasks.store import ensure_store
from vinedresser.tasks.sweep_file import load_sweep
from vinedresser.tasks.sweep_result import JOURNAL, Swept, begin_sweep, finish_sweep
from vinedresser.tasks.sweep_stages import compare, conclude, make_trial, restore
from vinedresser.tasks.trial_course import TrialCourse

__all__ = ["sweep"]


@flow(name="sweep", flow_run_name="sweep {path.stem}")
def sweep(
    path: Path,
    store: Path | str | None = None,
    at_once: int | None = None,
    resume: bool = False,
) -> Swept:
    """Search for the best configuration, at most so many trials at a time.

    Each trial is a training with its judges and recorder. A rule ends one that is broken, the study
    one that is worse than others. A trial that crashes is begun again a bounded number of times;
    one that fails ends nothing but itself, unless the first trials all fail for one reason.

    Args:
        path: the sweep file.
        store: takes the place of the file's ``run.store``: a path, or the URL of an object store.
        at_once: takes the place of the file's ``run.at_once``.
        resume: go on with the sweep that the store has.

    Returns:
        What became of the trials, and what went wrong beside them.

    Raises:
        ConfigError: the file is not right, or the sweep in the store is another; nothing was
            started.
        AlreadyARun: the store has this sweep, and it is not to be gone on with.
        StillRunning: another process runs it.
        StoreError: the store refused; nothing was started.
        TrackingError: MLflow could not be prepared; nothing was started.
    """
    searched = load_sweep(path, store=store, at_once=at_once)
    place = searched.experiment.store
    ensure_store(place)
    study = searched.study(searched.state / JOURNAL)
    try:
        reconcile(place)
        this = remember_flow(searched.state, str(flow_run.id), str(flow_run.name))
        try:
            tracking = begin_sweep(searched, resume=resume)
            conductor = Conductor(searched, study, tracking, flow=this.id)
            trials = _Trials(conductor, searched.experiment)
            trials.run()
            swept = Swept(
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
            finish_sweep(searched, swept, tracking)
            return swept
        finally:
            forget_flow(searched.state, this)
    finally:
        study.close()


class _Trials:
    """The trials of a sweep: as many at the same time as there are slots.

    Args:
        conductor: of the sweep.
        experiment: what they share.
    """

    def __init__(self, conductor: Conductor, experiment: Experiment) -> None:
        self._conductor = conductor
        self._experiment = experiment
        self._states: list[State[Any]] = []
        self._futures: list[PrefectFuture[Any]] = []
        # A trial whose run is settled; None: a slot is free.
        self._ended: SimpleQueue[TrialCourse | None] = SimpleQueue()
        self._again: deque[TrialCourse] = deque()

    def run(self) -> None:
        """Begin trials until there are no more, and see all of them to their end."""
        slots = self._experiment.at_once
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
                self._conclude(ended)

    def problems(self) -> list[str]:
        """Return what the failed tasks said."""
        return complaints([*self._states, *(future.state for future in self._futures)])

    def _next(self) -> TrialCourse | None:
        return self._again.popleft() if self._again else self._conductor.next()

    def _begin(self, trial: TrialCourse) -> bool:
        """Start the next run of a trial, if it can be made and the trial is not over already."""
        if trial.earlier and self._was_over(trial):
            return False
        made = make_trial(self._conductor, trial, return_state=True)
        self._states.append(made)
        if not made.is_completed():
            self._conductor.give_up(trial, str(made.message))
            return False
        compared = compare.submit(self._conductor, trial)
        around = supervise(trial.places[-1], self._experiment, [compared])
        around.launched.add_done_callback(lambda _: self._ended.put(None))
        around.finished.add_done_callback(lambda _: self._ended.put(trial))
        self._futures += around.futures
        return True

    def _was_over(self, trial: TrialCourse) -> bool:
        """Conclude a trial that an earlier process began, if it is over already."""
        found = restore(trial, return_state=True)
        self._states.append(found)
        if not found.is_completed():
            self._conductor.give_up(trial, str(found.message))
            return True
        if over := bool(found.result()):
            self._conclude(trial)
        return over

    def _conclude(self, trial: TrialCourse) -> None:
        """Tell the study of a trial whose run is over, or have it begun again."""
        told = conclude(self._conductor, trial, return_state=True)
        self._states.append(told)
        if not told.is_completed():
            self._conductor.give_up(trial, str(told.message))
        elif told.result() is None:
            self._again.append(trial)
