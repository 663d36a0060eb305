"""Who conducts a sweep: begins trials within its budget, cuts them off, and counts what came."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import StillRunning, StoreError, TrackingError
from vinedresser.infra.clusters.runner_settings import LOCAL
from vinedresser.infra.launcher import request_stop
from vinedresser.store.records import TrackingRecord
from vinedresser.store.storage import open_storage
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Proposal, Trial, TrialEnd
from vinedresser.tasks.config.sweep_file import Sweep
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.prepare import prepare_one
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.retry_outages import retry_outages
from vinedresser.tasks.sweeping.suspecting import Suspects
from vinedresser.tasks.sweeping.trial_runs import TrialRuns

__all__ = ["SweepRunner", "Standing", "observer"]

# Looks on while a sweep runs, in this process.
observer: ContextVar[Callable[[SweepRunner], None] | None] = ContextVar("observer", default=None)

# Seconds for which a trial trains on when its flow was killed, for `--resume` to adopt it.
_PATIENCE = 60.0


class Standing(NamedTuple):
    """How a sweep stands.

    Attributes:
        sweep: which.
        running: the trials that have begun and are not over.
        ended: those that are over, in the order in which they ended; it grows.
    """

    sweep: Sweep
    running: list[Trial]
    ended: Sequence[Trial]


class SweepRunner:
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
        if (looks_on := observer.get()) is not None:
            looks_on(self)

    def next(self) -> TrialRuns | None:
        """Return the next trial; None when there is to be none any more.

        What was running when an earlier process of this sweep ended comes first.
        """
        with self._lock:
            if self._left and not INTERRUPTED.is_set():
                return TrialRuns(self._sweep, self._left.pop(0), earlier=True)
            proposal = self._next()
        return TrialRuns(self._sweep, proposal) if proposal is not None else None

    def give_up(self, trial: TrialRuns, error: object) -> None:
        """Take note of a trial whose run cannot be made or read.

        When MLflow or the store is away the trial is not to blame: the study is not told, so that
        it is begun again when the sweep goes on; and no further one begins.
        """
        with self._lock:
            reason = str(error)
            if isinstance(error, StoreError | TrackingError | StillRunning):
                self.problem = self.problem or f"{trial.name} waits for --resume: {reason}"
                self.over = self.over or self.problem
                return
            self._look_for_one_reason(self._study.tell(trial.number, TrialEnd("failed", reason)))

    def restore(self, trial: TrialRuns) -> bool:
        """Take in what an earlier process of the sweep left of a trial.

        Returns:
            Whether the trial is over; see `TrialRuns.restore`.

        Raises:
            VinedresserError: a run of it cannot be read, or does not end.
        """
        over = retry_outages(trial.restore, self._sweep.experiment.store)
        self._tell_values(trial)
        if trial.cut is not None and trial.adopted:
            self._end(trial.places[-1], trial.cut)
        return over or (trial.cut is not None and not trial.adopted)

    def make_run(self, trial: TrialRuns) -> RunPlace:
        """Make the next run of a trial; it is ready to be started.

        Raises:
            TrackingError: MLflow's database or server refused.
            StoreError: the store refused.
        """
        place = retry_outages(lambda: self._make(trial), self._sweep.experiment.store)
        if INTERRUPTED.is_set():
            # Whoever asked all runs to stop may have done so before there was this one.
            request_stop(place.directory, reason=INTERRUPTED.reason)
        trial.begins(place)
        return place

    def _make(self, trial: TrialRuns) -> RunPlace:
        """Make the next run of a trial, ready to be started."""
        experiment = self._sweep.experiment
        # Of an object store the directory is a spool, which goes when it is uploaded.
        adoptable = isinstance(experiment.store, Path) and experiment.runner == LOCAL
        place = prepare_one(
            experiment,
            trial.next_spec(),
            self._tracking,
            flow=self._flow,
            patience=_PATIENCE if adoptable else 0.0,
        )
        place.begin()
        return place

    def follow(self, trial: TrialRuns) -> None:
        """Follow the last run of a trial to its end, and end it when the study says so.

        Raises:
            StoreError: the run cannot be read, and could not for some minutes.
        """
        place = trial.places[-1]
        groups = self._sweep.experiment.rules
        suspects = Suspects(open_storage(place.location), groups, trial.name)

        def once() -> None:
            for step in trial.unseen():
                for epoch, value in trial.course.add(step):
                    compared = trial.cut is None and self._study.compares(epoch)
                    suspicion = suspects.at(step.step) if compared else None
                    self._report(trial, place, epoch, value, suspicion)

        if place.appear():
            retry_outages(once, place.location)
        trial.followed = True

    def conclude(self, trial: TrialRuns) -> Trial | None:
        """Tell the study how a trial ended, whose run is over.

        Returns:
            What is known of it; None where it crashed and is to be begun again. What an
            interruption ended the study is not told of: it is begun again when the sweep goes on.

        Raises:
            VinedresserError: the run cannot be read.
        """
        retry_outages(trial.catch_up, self._sweep.experiment.store)
        self._tell_values(trial)
        ending = retry_outages(trial.ending, self._sweep.experiment.store)
        if ending is None:
            if INTERRUPTED.is_set():
                return self._study.trial(trial.number)
            trial.adopted = False
            if trial.broken_off():
                return None
            trial.crashes += 1
            if trial.crashes <= self._sweep.settings.retries:
                return None
            ending = TrialEnd("failed", trial.crash())
        with self._lock:
            result = trial.course.result() if ending.state == "finished" else ()
            told = self._study.tell(trial.number, ending, result)
            self._look_for_one_reason(told)
        trial.forget_fetched()
        return told

    def finish(self) -> None:
        """Say whether it came to nothing, when all trials are over."""
        failed = [one.ending for one in self.trials() if one.ending.state == "failed"]
        if not self.problem and failed and len(failed) == len(self.trials()):
            said = f"all {len(failed)} trials" if len(failed) > 1 else "its only trial"
            self.problem = f"{said} failed: {failed[-1].reason}"

    def trials(self) -> list[Trial]:
        """Return all trials that have begun."""
        with self._lock:
            return self._study.trials()

    def standing(self) -> Standing:
        """Return how the sweep stands."""
        with self._lock:
            return Standing(self._sweep, self._study.running(), self._study.ended)

    def best(self) -> list[Trial]:
        """Return the best trial, or the Pareto front."""
        with self._lock:
            return self._study.best()

    def _tell_values(self, trial: TrialRuns) -> None:
        """Tell the study what a trial reported when nobody was there to do so."""
        with self._lock:
            for epoch, value in enumerate(trial.course.values[0], start=1):
                ending = self._study.report(trial.number, epoch, value)
                trial.cut = trial.cut or ending

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
            return INTERRUPTED.reason
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return f"its time, {self._sweep.settings.wall_time}, is over"
        limit = self._sweep.settings.total_epochs
        if limit is not None:
            used = sum(trial.epochs for trial in (*self._study.ended, *self._study.running()))
            if used >= limit:
                return f"{used} of {limit} epochs are used"
        return ""

    def _report(
        self,
        trial: TrialRuns,
        place: RunPlace,
        epoch: int,
        value: float,
        suspicion: TrialEnd | None,
    ) -> None:
        with self._lock:
            ending = self._study.report(trial.number, epoch, value, suspicion)
        if ending is None or trial.cut is not None:
            return
        trial.cut = ending
        self._end(place, ending)

    @staticmethod
    def _end(place: RunPlace, ending: TrialEnd) -> None:
        """Ask a run to end."""
        request_stop(place.control, by="sweep", reason=ending.reason, rule=ending.rule)

    def _look_for_one_reason(self, told: Trial) -> None:
        """End the sweep when its first trials all failed for one reason."""
        most = self._sweep.settings.same_failures
        if len(self._reasons) >= most:
            return
        self._reasons.append(told.ending.reason if told.ending.state == "failed" else "")
        if len(self._reasons) == most and all(self._reasons) and len(_kinds(self._reasons)) == 1:
            self.problem = f"the first {most} trials all failed: {self._reasons[0]}"
            self.over = self.over or self.problem


def _kinds(reasons: Iterable[str]) -> set[str]:
    """Return reasons without the numbers in them, which are a trial's own."""
    return {re.sub(r"[-+.\w]*\d[-+.\w]*", "#", reason) for reason in reasons}
