"""Run a sweep: begin trials within its budget, end bad ones early, and collect the results."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import StillRunning, StoreError, TrackingError, VinedresserError
from vinedresser.infra.services.tracking import set_tags
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.objects import LocalStorage, open_storage
from vinedresser.plain_logs import plain_logger
from vinedresser.store.records import TrackingRecord, read_record
from vinedresser.sweeps.enough import enough
from vinedresser.sweeps.spec import PointRecord, SweepRecord, point_key
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Line, Proposal, Trial, TrialEnd, trial_name
from vinedresser.tasks.config.sweep_file import Sweep
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.prepare import RunMaker
from vinedresser.tasks.lifecycle.run_queue import RunQueue
from vinedresser.tasks.parents.kinds import is_removed
from vinedresser.tasks.places.cluster_place import WorkOrder
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.retry_outages import retry_outages
from vinedresser.tasks.sweeping.best_model import missing_model
from vinedresser.tasks.sweeping.suspecting import Suspects
from vinedresser.tasks.sweeping.trial_runs import TrialRuns

__all__ = ["Standing", "SweepRunner", "TrialQueue", "observer"]

# Called with the runner of a sweep that begins in this process.
observer: ContextVar[Callable[[SweepRunner], None] | None] = ContextVar("observer", default=None)

# Not Prefect's logger: the calling thread may have no task.
_LOG = plain_logger(__name__)
# Seconds that a trial continues after its flow was killed, for `--resume` to adopt it.
_PATIENCE = 60.0
# Seconds between two looks at the trials of other processes.
_LOOK = 1.0


class Standing(NamedTuple):
    """The standing of a sweep.

    Attributes:
        running: trials that have begun and are not over.
        ended: trials that are over, in the order of their ends; it grows.
    """

    sweep: Sweep
    running: list[Trial]
    ended: Sequence[Trial]


class SweepRunner:
    """Runs a sweep; several threads may call its methods at the same time.

    Args:
        channels: see `fetch_channels`.
        study: study that decides about trials.
        tracking: MLflow's run of the sweep.
        flow: id of the flow run.
        order: how workers of a cluster train; None: trials train in local processes.

    Attributes:
        over: why no other trial begins; "" while one may.
        problem: what is wrong with the sweep as a whole; "" for nothing.
    """

    def __init__(
        self,
        sweep: Sweep,
        channels: Mapping[str, Sequence[str]],
        study: Study,
        tracking: TrackingRecord,
        *,
        flow: str,
        order: WorkOrder | None = None,
    ) -> None:
        self.sweep = sweep
        self._study = study
        # On an object store the directory is a spool, which is removed when it is uploaded.
        adoptable = order is None and isinstance(sweep.experiment.store, Path)
        patience = _PATIENCE if adoptable else 0.0
        self._maker = RunMaker(
            sweep.experiment, channels, tracking, flow=flow, order=order, patience=patience
        )
        self._lock = threading.Lock()
        self._left: list[Proposal] = []
        # Trials of other processes that ran when there was no trial to begin.
        self._awaited: set[int] = set()
        self._reasons: list[str] = []
        # Number of the configurations that were taken from the queue.
        self._points = 0
        # Whether an evaluation of a trial was seen.
        self._evaluated = False
        # Whether the model of a finished trial was looked for.
        self._looked = sweep.settings.register is None
        seconds = sweep.settings.seconds
        self._deadline = time.monotonic() + seconds if seconds is not None else None
        self.over = ""
        self.problem = ""
        if (observe := observer.get()) is not None:
            observe(self)

    @property
    def one_by_one(self) -> bool:
        """Whether trials are not concurrent, and results decide on the next ones."""
        settings = self.sweep.settings
        drawn = settings.sampler_name in ("random", "grid")
        by_values = settings.pruner_name in ("none", "asha", "hyperband")
        by_count = settings.target is None and settings.plateau is None
        return self.sweep.experiment.max_concurrent == 1 and not (drawn and by_values and by_count)

    def next(self) -> TrialRuns | None:
        """Return the next trial; None if there is none.

        Trials that were running when another process of this sweep ended come first.
        """
        with self._turn():
            if left := self._study.again():
                self._left += left
                # The process that is gone may have been the host.
                self._study.hosts()
            if self._left and not INTERRUPTED.is_set() and not self._removed():
                return TrialRuns(self.sweep, self._left.pop(0), earlier=True)
            proposal = self._next()
            if proposal is None:
                self._awaited = self._study.others()
        return TrialRuns(self.sweep, proposal) if proposal is not None else None

    def give_up(self, trial: TrialRuns, error: object) -> None:
        """Give up a trial whose run cannot be made or read.

        If MLflow or the store is unavailable, or the sweep was interrupted, the trial is not to
        blame: the study is not told, so that a resumed sweep begins it again, and no other trial
        begins.
        """
        with self._turn():
            reason = str(error)
            away = isinstance(error, StoreError | TrackingError | StillRunning)
            if away or INTERRUPTED.is_set():
                self.problem = self.problem or f"{trial.name} waits for --resume: {reason}"
                self.over = self.over or self.problem
                return
            self._check_same_failure(self._study.tell(trial.number, TrialEnd("failed", reason)))

    def restore(self, trial: TrialRuns) -> bool:
        """Restore a trial that an earlier process of the sweep began.

        Returns:
            Whether the trial is over; see `TrialRuns.restore`.

        Raises:
            VinedresserError: a run of it cannot be read or does not end.
        """
        over = retry_outages(trial.restore, self.sweep.experiment.store)
        self._tell_values(trial)
        if trial.cut is not None and trial.adopted:
            self._end(trial.places[-1], trial.cut)
        return over or (trial.cut is not None and not trial.adopted)

    def make_run(self, trial: TrialRuns) -> None:
        """Make the next run of a trial, ready to be launched.

        Raises:
            TrackingError: MLflow's database or server refused.
            StoreError: the store refused a request.
        """

        def make() -> RunPlace:
            place = self._maker.make(trial.next_spec())
            _tag(place, trial.proposal.line)
            place.begin()
            return place

        trial.begins(retry_outages(make, self.sweep.experiment.store))

    def follow(self, trial: TrialRuns) -> None:
        """Follow the last run of a trial to its end, and end it early if the study says so.

        Raises:
            StoreError: the run could not be read for some minutes.
        """
        place = trial.places[-1]
        groups = self.sweep.experiment.rules
        suspects = Suspects(open_storage(place.location), groups, trial.name)

        def once() -> None:
            for step in trial.unseen():
                for epoch, value in trial.history.add(step):
                    compared = trial.cut is None and self._study.compares(epoch)
                    suspicion = suspects.at(step.step) if compared else None
                    self._report(trial, place, epoch, value, suspicion)
                if step.mode == "eval" and not self._evaluated:
                    self._evaluated = True
                    if missing := trial.history.missing():
                        _LOG.warning("first evaluation of %s: %s", trial.name, missing)

        if place.appear():
            retry_outages(once, place.location)
        trial.followed = True

    def conclude(self, trial: TrialRuns) -> Trial | None:
        """Tell the study how a trial ended whose run is over.

        The study is not told about an interruption: a resumed sweep begins the trial again.

        Returns:
            The trial; None if it crashed and is to begin again.

        Raises:
            VinedresserError: the run cannot be read.
        """
        retry_outages(trial.catch_up, self.sweep.experiment.store)
        self._tell_values(trial)
        ending = retry_outages(trial.ending, self.sweep.experiment.store)
        if ending is None:
            if INTERRUPTED.is_set():
                return self._study.trial(trial.number)
            trial.adopted = False
            if trial.broken_off():
                return None
            trial.crashes += 1
            if trial.crashes <= self.sweep.settings.retries:
                return None
            ending = TrialEnd("failed", trial.crash())
        with self._turn():
            values = trial.history.result() if ending.state == "finished" else ()
            count = len(self.sweep.settings.goals)
            told = self._study.tell(trial.number, ending, values[:count], values[count:])
            finished = ending.reason and ending.reason == trial.history.missing()
            # In a sweep that is resumed, earlier trials may have had the metric.
            certain = bool(finished) and trial.history.misnamed and not self._study.best()
            self._check_same_failure(told, certain=certain)
        trial.clean_up(finished=told.ending.state == "finished")
        if told.ending.state == "finished" and not self._looked:
            self._looked = True
            # Not only after hours, when the best one is to be registered.
            if missing := missing_model(self.sweep.experiment.store, trial.name):
                register = self.sweep.settings.register
                _LOG.warning("%s could not be registered as %s: %s", trial.name, register, missing)
        return told

    def may_begin_again(self) -> bool:
        """Return whether a trial that crashed may begin again."""
        with self._turn():
            return not self._removed()

    def await_others(self) -> bool:
        """Wait for the trials of other processes of this sweep, on which the next ones may depend.

        The host of the sweep awaits all, as it reports on them.

        Returns:
            Whether there may be another trial to begin.
        """
        while not (self.problem or INTERRUPTED.is_set()):
            hosts = self._study.hosts()
            with self._turn():
                self._left += self._study.again()
                others = self._study.others()
            if self._left or others != self._awaited:
                return True
            if not others or (self.over and not hosts):
                return False
            time.sleep(_LOOK)
        return False

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Keep other threads and other processes of the sweep from deciding meanwhile."""
        with self._lock, self._study.turn():
            yield

    def finish(self) -> None:
        """Set `problem` if all trials failed; call it when they are over."""
        failed = [trial.ending for trial in self.trials() if trial.ending.state == "failed"]
        if not self.problem and failed and len(failed) == len(self.trials()):
            said = f"all {len(failed)} trials" if len(failed) > 1 else "its only trial"
            self.problem = f"{said} failed: {failed[-1].reason}"

    def trials(self) -> list[Trial]:
        """Return all trials that have begun."""
        with self._turn():
            return self._study.trials()

    def standing(self) -> Standing:
        """Return the standing of the sweep, as of the last turn of this process."""
        with self._lock:
            sweep = replace(self.sweep, planned=self._study.planned)
            return Standing(sweep, self._study.running(), self._study.ended)

    def best(self) -> list[Trial]:
        """Return the best trial, or the Pareto front."""
        with self._turn():
            return self._study.best()

    def _tell_values(self, trial: TrialRuns) -> None:
        """Tell the study the values that a trial reported to no process."""
        with self._turn():
            for epoch, value in enumerate(trial.history.values[0], start=1):
                ending = self._study.report(trial.number, epoch, value)
                trial.cut = trial.cut or ending

    def _take_points(self) -> None:
        """Add the configurations that were enqueued meanwhile, which come next."""
        storage = LocalStorage(self.sweep.state)
        while True:
            key = point_key(self._points)
            try:
                record = read_record(storage, PointRecord, key=key)
                if record is None:
                    return
                self._study.enqueue(record.parameters)
            except VinedresserError as error:
                _LOG.warning("%s is not tried: %s", key, error)
            self._points += 1
            if self.over == self._study.over:
                self.over = ""

    def _next(self) -> Proposal | None:
        self._take_points()
        self.over = self.over or self._used_up()
        if self._removed():
            return None
        proposal = None if self.over else self._study.ask()
        if proposal is not None:
            return proposal
        self.over = self.over or self._study.over
        return self._best_again()

    def _best_again(self) -> Proposal | None:
        """Return a trial that trains the best one again, once all others are over."""
        if not self.sweep.settings.again or self.problem or INTERRUPTED.is_set():
            return None
        others = any(trial.again is None for trial in self._study.running())
        return None if others else self._study.train_again()

    def _removed(self) -> bool:
        """Return whether the sweep's folder was removed, which is its end."""
        if not is_removed(self.sweep.state, SweepRecord):
            return False
        self.problem = f"{self.sweep.state}: the folder of the sweep was removed while it ran"
        self.over = self.problem
        return True

    def _used_up(self) -> str:
        """Return which budget is exhausted; "" for none."""
        if INTERRUPTED.is_set():
            return INTERRUPTED.reason
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return f"its time, {self.sweep.settings.wall_time}, is over"
        limit = self.sweep.settings.total_epochs
        if limit is not None:
            begun = (*self._study.ended, *self._study.running())
            used = sum(trial.epochs for trial in begun if trial.again is None)
            if used >= limit:
                return f"{used} of {limit} epochs are used"
        return enough(self.sweep.settings, self._study.ended)

    def _report(
        self,
        trial: TrialRuns,
        place: RunPlace,
        epoch: int,
        value: float,
        suspicion: TrialEnd | None,
    ) -> None:
        with self._turn():
            ending = self._study.report(trial.number, epoch, value, suspicion)
        if ending is None or trial.cut is not None:
            return
        trial.cut = ending
        self._end(place, ending)

    @staticmethod
    def _end(place: RunPlace, ending: TrialEnd) -> None:
        """Ask a run to end."""
        request_stop(place.control, by="sweep", reason=ending.reason, rule=ending.rule)

    def _check_same_failure(self, told: Trial, *, certain: bool = False) -> None:
        """End the sweep if its first trials all failed for the same reason.

        Args:
            certain: all others will fail for this reason: the first one is enough.
        """
        most = self.sweep.settings.same_failures
        if len(self._reasons) >= most:
            return
        self._reasons.append(told.ending.reason if told.ending.state == "failed" else "")
        trials = len(self._reasons)
        enough = trials == most or (certain and trials == 1)
        if enough and all(self._reasons) and len(_kinds(self._reasons)) == 1:
            first = "first trial" if trials == 1 else f"first {trials} trials all"
            self.problem = f"the {first} failed: {self._reasons[0]}"
            self.over = self.over or self.problem


def _tag(place: RunPlace, line: Line | None) -> None:
    """Tell MLflow the place of a trial in a population."""
    if line is None or place.tracking is None:
        return
    tags = {
        "sweep.generation": line.generation,
        "sweep.member": line.member,
        "sweep.parent": None if line.parent is None else trial_name(line.parent),
        "sweep.copied": str(line.copied).lower(),
    }
    set_tags(place.tracking.uri, place.tracking.run_id, tags)


def _kinds(reasons: Iterable[str]) -> set[str]:
    """Return reasons without their numbers, which differ between trials."""
    return {re.sub(r"[-+.\w]*\d[-+.\w]*", "#", reason) for reason in reasons}


class TrialQueue(RunQueue[TrialRuns]):
    """Begins each trial, and begins it again if it crashed.

    Without concurrency, a trial begins when the study knows how the one before ended, so that a
    sweep depends on no timing.
    """

    # A configuration may be enqueued at any time.
    look = 1.0

    def __init__(self, sweep: SweepRunner) -> None:
        super().__init__()
        self._sweep = sweep
        self._again: deque[TrialRuns] = deque()
        self._one_by_one = sweep.one_by_one
        self._unsettled = 0

    def next(self) -> TrialRuns | None:
        """Return a trial that begins again, or else the next one."""
        if self._one_by_one and self._unsettled:
            return None
        if self._again and self._sweep.may_begin_again():
            return self._again.popleft()
        return self._sweep.next()

    def begin(self, item: TrialRuns) -> RunPlace | None:
        """Return the place of a trial's next run; None if it cannot be made or the trial is over.

        An earlier process may have ended the trial without telling the study.
        """
        try:
            if item.earlier and self._sweep.restore(item):
                self._conclude(item)
                return None
            if not item.adopted:
                self._sweep.make_run(item)
        except VinedresserError as error:
            self._give_up(item, error)
            return None
        self._unsettled += 1
        return item.places[-1]

    def compare(self, item: TrialRuns) -> Callable[[], None]:
        """Return what follows a trial's run and ends it if the study says so."""
        return partial(self._sweep.follow, item)

    def ended(self, item: TrialRuns) -> None:
        """Tell the study how a trial ended, or queue it to begin again."""
        self._unsettled -= 1
        self._conclude(item)

    def _conclude(self, item: TrialRuns) -> None:
        try:
            if self._sweep.conclude(item) is None:
                self._again.append(item)
        except VinedresserError as error:
            self._give_up(item, error)

    def _give_up(self, trial: TrialRuns, error: VinedresserError) -> None:
        self.problems[str(error)] = None
        self._sweep.give_up(trial, error)
