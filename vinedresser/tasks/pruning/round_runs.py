"""A round of a pruning in progress: its runs, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vinedresser.pruning.folders import round_folder
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.round_run import Refusal
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import read_record
from vinedresser.store.status import Status
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.config.prune_file import Pruning
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.prepare import RunMaker
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts

__all__ = ["RoundEnd", "RoundRuns"]


class RoundEnd(NamedTuple):
    """How a round ended.

    Attributes:
        record: its record; None if it has no result.
        again: whether it is to begin again: its run crashed or was killed, or is replaced.
        reason: why it has no result.
        refused: the model does not allow the round, which is no failure of it.
    """

    record: RoundRecord | None = None
    again: bool = False
    reason: str = ""
    refused: bool = False


class RoundRuns:
    """A round: one run, or several if one crashed or was replaced.

    Args:
        pruning: the pruning.
        number: number of the round.

    Attributes:
        number: number of the round.
        attempts: its last run, and those that replaced it because a rule had stopped it; None
            before the first.
    """

    def __init__(self, pruning: Pruning, number: int) -> None:
        self.number = number
        self.attempts: RemedyAttempts | None = None
        self._pruning = pruning
        self._storage = LocalStorage(round_folder(pruning.state, number))
        self._crashes = 0
        self._corrected = False

    @property
    def name(self) -> str:
        """Name of its first run."""
        return f"round-{self.number}"

    def record(self) -> RoundRecord | None:
        """Return its record; None if it is not complete.

        Raises:
            CorruptData: the record is damaged.
            StoreError: it cannot be read.
        """
        return read_record(self._storage, RoundRecord)

    def next_place(self, maker: RunMaker) -> RunPlace:
        """Return the place of its next run, made now unless a correction has made it.

        Raises:
            TrackingError: MLflow's database or server refused.
            StoreError: the store refused a request.
        """
        self._storage.delete(Refusal.KEY)
        if not self._corrected or self.attempts is None:
            spec = self._pruning.run_spec(self.number)
            place = maker.make(spec)
            assert place.tracking is not None, "it was just made"
            remedy = self._pruning.experiment.remedy
            self.attempts = RemedyAttempts(place, spec, remedy, place.tracking)
        self._corrected = False
        return self.attempts.places[-1]

    def end(self, correct: Callable[[RemedyAttempts], bool]) -> RoundEnd:
        """Return how it ended, its last run being over.

        Args:
            correct: makes the run that replaces the last one; returns False if there is none.

        Raises:
            VinedresserError: the run cannot be read, or its replacement cannot be made.
        """
        assert self.attempts is not None, "it has begun"
        record = self.record()
        if record is not None or INTERRUPTED.is_set():
            return RoundEnd(record, reason=INTERRUPTED.reason)
        if refusal := read_record(self._storage, Refusal):
            return RoundEnd(reason=f"{self.name}: {refusal.reason}", refused=True)
        status = open_run(self.attempts.places[-1].location).status
        if status.state == "stopped":
            return self._stopped(status, correct)
        if status.state == "finished":
            return RoundEnd(reason=f"{self.name}: {self._pruning.table.train} ended the process")
        self._crashes += 1
        again = self._crashes <= self._pruning.table.retries
        return RoundEnd(again=again, reason=f"{self.name} {status.state}: {status.reason}")

    def _stopped(self, status: Status, correct: Callable[[RemedyAttempts], bool]) -> RoundEnd:
        """Return how a round ended whose last run was stopped; replace it if that is possible."""
        assert self.attempts is not None, "it has begun"
        if self.attempts.asked_for and correct(self.attempts):
            self._corrected = True
            return RoundEnd(again=True)
        left = f"; {self.attempts.left}" if self.attempts.left else ""
        return RoundEnd(reason=f"{self.name} was stopped: {status.reason}{left}")
