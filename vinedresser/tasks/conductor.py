"""Who conducts a sweep: begins trials within its budget, cuts them off, and counts what came."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter

from vinedresser.capture.store.reader import open_run
from vinedresser.infra.launcher import request_stop
from vinedresser.infra.run_directory import TrackingRecord
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Ending, Proposal, Trial
from vinedresser.tasks.interruption import INTERRUPTED, INTERRUPTION
from vinedresser.tasks.outages import through_outages
from vinedresser.tasks.prepare import prepare_one
from vinedresser.tasks.run_place import RunPlace
from vinedresser.tasks.sweep_file import Sweep
from vinedresser.tasks.trial_course import TrialCourse

__all__ = ["Conductor"]


class Conductor:
    """Conducts a sweep; its methods may be called by several threads at once.

    Args:
        sweep: what is searched.
        study: which decides.
        tracking: MLflow's run of the sweep.
        flow: id of the flow run.

    Attributes:
        over: why no further trial begins; "" while there may be one.
        problem: what is wrong with the sweep as a whole; "" for nothing.
    """

    def __init__(self, sweep: Sweep, study: Study, tracking: TrackingRecord, *, flow: str) -> None:
        self._sweep = sweep
        self._study = study
        self._tracking = tracking
        self._flow = flow
        self._lock = threading.Lock()
        self._left = study.again()
        self._reasons: list[str] = []
        seconds = sweep.settings.seconds
        self._deadline = time.monotonic() + seconds if seconds is not None else None
        self.over = ""
        self.problem = ""

    def next(self) -> TrialCourse | None:
        """Return the next trial; None when there is to be none any more.

        What was running when an earlier process of this sweep ended comes first.
        """
        with self._lock:
            if self._left and not INTERRUPTED.is_set():
                return TrialCourse(self._sweep, self._left.pop(0), earlier=True)
            proposal = self._next()
        return TrialCourse(self._sweep, proposal) if proposal is not None else None

    def give_up(self, trial: TrialCourse, reason: str) -> None:
        """Tell the study of a trial whose run cannot be made or read."""
        with self._lock:
            self._look_for_one_reason(self._study.tell(trial.number, Ending("failed", reason)))

    def make_run(self, trial: TrialCourse) -> RunPlace:
        """Make the next run of a trial; it is not started.

        Raises:
            TrackingError: MLflow's database or server refused.
            StoreError: the store refused.
        """
        place = prepare_one(
            self._sweep.experiment, trial.next_plan(), self._tracking, flow=self._flow
        )
        if INTERRUPTED.is_set():
            # Whoever asked all runs to stop may have done so before there was this one.
            request_stop(place.directory, reason=INTERRUPTION)
        trial.begins(place)
        return place

    def follow(self, trial: TrialCourse) -> None:
        """Follow the last run of a trial to its end, and end it when the study says so.

        Raises:
            StoreError: the run cannot be read, and could not for some minutes.
        """
        place = trial.places[-1]

        seen = 0

        def once() -> None:
            nonlocal seen
            # After an outage the steps come again, in the same order.
            for step in itertools.islice(open_run(place.location).follow(), seen, None):
                seen += 1
                for epoch, value in trial.course.add(step):
                    self._report(trial, place, epoch, value)

        through_outages(once, place.location)

    def conclude(self, trial: TrialCourse) -> Trial | None:
        """Tell the study how a trial ended, whose run is over.

        Returns:
            What is known of it; None where it crashed and is to be begun again. What an
            interruption ended the study is not told of: it is begun again when the sweep goes on.

        Raises:
            VinedresserError: the run cannot be read.
        """
        ending = trial.ending()
        if ending is None:
            if INTERRUPTED.is_set():
                return self._study.trial(trial.number)
            trial.crashes += 1
            if trial.crashes <= self._sweep.settings.retries:
                return None
            ending = Ending("failed", trial.crash())
        with self._lock:
            result = trial.course.result() if ending.state == "finished" else ()
            told = self._study.tell(trial.number, ending, result)
            self._look_for_one_reason(told)
            return told

    def trials(self) -> list[Trial]:
        """Return all trials that have begun."""
        with self._lock:
            return self._study.trials()

    def best(self) -> list[Trial]:
        """Return the best trial, or the Pareto front."""
        with self._lock:
            return self._study.best()

    def _next(self) -> Proposal | None:
        self.over = self.over or self._used_up()
        if self.over:
            return None
        proposal = self._study.ask()
        if proposal is None:
            self.over = "all trials have begun"
        return proposal

    def _used_up(self) -> str:
        """Return which budget is used up."""
        if INTERRUPTED.is_set():
            return INTERRUPTION
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return f"its time, {self._sweep.settings.wall_time}, is over"
        limit = self._sweep.settings.total_epochs
        if limit is not None:
            used = sum(trial.epochs for trial in self._study.trials())
            if used >= limit:
                return f"{used} of {limit} epochs are used"
        return ""

    def _report(self, trial: TrialCourse, place: RunPlace, epoch: int, value: float) -> None:
        with self._lock:
            ending = self._study.report(trial.number, epoch, value)
        if ending is None or trial.cut is not None:
            return
        trial.cut = ending
        request_stop(place.directory, by="sweep", reason=ending.reason)

    def _look_for_one_reason(self, told: Trial) -> None:
        """End the sweep when its first trials all failed for one reason."""
        most = self._sweep.settings.same_failures
        if len(self._reasons) >= most:
            return
        self._reasons.append(told.ending.reason if told.ending.state == "failed" else "")
        [(reason, count)] = Counter(self._reasons).most_common(1)
        if reason and count == most:
            self.problem = f"the first {most} trials all failed: {reason}"
            self.over = self.over or self.problem
