"""The runs of an experiment and the attempts that replace stopped ones, as a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from vinedresser.errors import VinedresserError
from vinedresser.objects import LocalStorage
from vinedresser.store.records import TrackingRecord, read_record
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.prepare import RunMaker
from vinedresser.tasks.lifecycle.run_queue import RunQueue
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts

__all__ = ["AttemptQueue", "make_attempt", "make_runs"]


def make_runs(experiment: Experiment, maker: RunMaker) -> list[RemedyAttempts]:
    """Make the runs of an experiment, and return each with its attempts, none yet.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the store refused a request.
    """
    made = []
    for spec in experiment.specs:
        place = maker.make(spec)
        tracking = read_record(LocalStorage(place.directory), TrackingRecord)
        assert tracking is not None, "it was just made"
        attempts = RemedyAttempts(
            place, spec, experiment.remedy, tracking, experiment.cwd, table=experiment.run
        )
        made.append(attempts)
    return made


def make_attempt(attempts: RemedyAttempts, maker: RunMaker) -> bool:
    """Make the run that replaces the last one, which is over; return False if there is none.

    Raises:
        VinedresserError: the last run cannot be read, or the store or MLflow refused.
    """
    attempt = attempts.next()
    if attempt is None:
        return False
    if INTERRUPTED.is_set():
        attempts.left = INTERRUPTED.reason
        return False
    # MLflow shows all attempts under the first run, to be compared with it.
    parent = attempts.tracking.run_id
    place = maker.make(attempt.spec, remedy=attempt.remedy, restart=attempt.restart, parent=parent)
    attempts.begun(place, attempt)
    return True


class AttemptQueue(RunQueue[RemedyAttempts]):
    """Begins each run once, and its attempts one after the other.

    Args:
        runs: the runs, none of which has begun.
        correct: makes the run that replaces the last one; returns False if there is none.
    """

    def __init__(
        self, runs: Sequence[RemedyAttempts], correct: Callable[[RemedyAttempts], bool]
    ) -> None:
        super().__init__()
        self._waiting = deque(runs)
        self._correct = correct

    def next(self) -> RemedyAttempts | None:
        """Return the next run or attempt."""
        return self._waiting.popleft() if self._waiting else None

    def begin(self, item: RemedyAttempts) -> RunPlace | None:
        """Return the place of the next run, ready to be launched."""
        place = item.places[-1]
        try:
            # Not earlier: until then another process may have taken the place.
            place.begin()
        except VinedresserError as error:
            self.problems[str(error)] = None
            return None
        return place

    def pause(self, item: RemedyAttempts) -> float:
        """Return the seconds after which the last attempt begins."""
        return item.pause

    def ended(self, item: RemedyAttempts) -> None:
        """Put the run back if there is an attempt to replace it."""
        if not item.may_follow:
            return
        try:
            corrected = self._correct(item)
        except VinedresserError as error:
            self.problems[str(error)] = None
            return
        if corrected:
            self._waiting.append(item)
