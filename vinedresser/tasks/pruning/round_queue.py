"""The rounds of a pruning, one after the other, as a queue of runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from vinedresser.errors import CorruptData, StoreError, VinedresserError
from vinedresser.objects import LocalStorage
from vinedresser.pruning.folders import PRUNED, TUNED, round_folder
from vinedresser.pruning.rounds.ending import ending
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.round_run import Refusal
from vinedresser.pruning.saving import WEIGHTS
from vinedresser.pruning.spec import PruningRecord
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.records import read_record
from vinedresser.tasks.config.prune_file import Pruning
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.earlier_runs import bring_to_end
from vinedresser.tasks.lifecycle.prepare import RunMaker
from vinedresser.tasks.lifecycle.run_queue import RunQueue
from vinedresser.tasks.parents.kinds import is_removed
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.fatal_finding import late_finding, runs_of
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts

__all__ = ["RoundQueue", "RoundRuns", "round_observer"]

# Called with the queue of a pruning that begins in this process.
round_observer: ContextVar[Callable[[RoundQueue], None] | None] = ContextVar(
    "round_observer", default=None
)


class _RoundEnd(NamedTuple):
    """How a round ended.

    Attributes:
        record: its record; None if it has no result.
        again: whether it is to begin again: its run crashed or was killed, or is replaced.
        reason: why it has no result.
        refused: the model does not allow to remove more, which is no failure.
    """

    record: RoundRecord | None = None
    again: bool = False
    reason: str = ""
    refused: bool = False


class RoundRuns:
    """A round: one run, or several if one crashed or was replaced.

    Attributes:
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

    def accepted_record(self) -> RoundRecord | None:
        """Return the record of a round that an earlier process may have made; None if it has none.

        If that process could not yet ask the rules, a faulty round loses its record here.

        Raises:
            VinedresserError: the record or a run cannot be read.
        """
        record = self.record()
        following = round_folder(self._pruning.state, self.number + 1)
        if record is not None and not following.exists():
            self._drop_if_faulty_run(record.run)
            record = self.record()
        return record

    def end_earlier(self) -> None:
        """Wait for the end of the runs that an earlier process began.

        Raises:
            StillRunning: one does not end.
            VinedresserError: a run cannot be read.
        """
        experiment = self._pruning.experiment
        earlier: dict[float, str] = {}
        for location in runs_in(experiment.store):
            name = location.name
            # Also those that replaced one that a rule had stopped, and those of a command.
            if name == self.name or name.startswith((f"{self.name}-", f"{self.name}.")):
                bring_to_end(location, experiment.run.grace)
                earlier |= {} if "." in name else {open_run(location).info.created: name}
        if earlier:
            self._drop_if_faulty_run(earlier[max(earlier)])

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
            self.attempts = RemedyAttempts(
                place, spec, remedy, place.tracking, self._pruning.experiment.cwd
            )
        self._corrected = False
        return self.attempts.places[-1]

    def end(self, correct: Callable[[RemedyAttempts], bool]) -> _RoundEnd:
        """Return how it ended, its last run being over.

        Args:
            correct: makes the run that replaces the last one; returns False if there is none.

        Raises:
            VinedresserError: the run cannot be read, or its replacement cannot be made.
        """
        assert self.attempts is not None, "it has begun"
        place = self.attempts.places[-1]
        late = None if place.removed else self._drop_if_faulty(runs_of(place))
        self.attempts.late = late
        record = self.record()
        if record is not None or INTERRUPTED.is_set():
            return _RoundEnd(record, reason=INTERRUPTED.reason)
        status = open_run(place.location).status
        if status.state == "stopped":
            return self._begin_corrected(f"{self.name} was stopped: {status.reason}", correct)
        if late is not None:
            said = f"{late.rule} found after the training: {late.seen}"
            return self._begin_corrected(f"{self.name} is refused: {said}", correct)
        if refusal := read_record(self._storage, Refusal):
            # Once filters are removed, what is wrong is the fine-tuning or the evaluation.
            removed = self._storage.exists(f"{PRUNED}/{WEIGHTS}")
            return _RoundEnd(reason=f"{self.name}: {refusal.reason}", refused=not removed)
        if status.state == "finished":
            return _RoundEnd(reason=f"{self.name}: {self._pruning.table.trainer} ended the process")
        self._crashes += 1
        again = self._crashes <= self._pruning.table.retries
        return _RoundEnd(again=again, reason=f"{self.name} {status.state}: {status.reason}")

    def _drop_if_faulty(self, runs: Sequence[Run]) -> Finding | None:
        """Remove the results of a run that rules find faulty.

        A rule may see the fault only while the model is evaluated, or after that. The next run
        would then begin with the weights that the fault has left.

        Args:
            runs: the last run of the round, which is over, and its additional runs.

        Returns:
            The finding that would have stopped the run if it had trained longer; None if it was
            stopped, or there is no such finding.
        """
        status = runs[0].status
        late = None
        if status.state == "finished" or (status.state != "stopped" and self._trained):
            late = late_finding(runs, self._pruning.experiment.action_plan)
        if late is not None or status.by == "rule":
            self._storage.delete(f"{TUNED}/{WEIGHTS}")
            # Last: a round that has a record and no weights is dropped again.
            self._storage.delete(RoundRecord.KEY)
        return late

    def _drop_if_faulty_run(self, name: str) -> None:
        """Remove the results of an earlier run that rules find faulty, unless it was removed."""
        found = [
            location
            for location in runs_in(self._pruning.experiment.store)
            if location.name == name or location.name.startswith(f"{name}.")
        ]
        runs = sorted(map(open_run, found), key=lambda run: run.info.name != name)
        if runs and runs[0].info.name == name:
            self._drop_if_faulty(runs)

    @property
    def _trained(self) -> bool:
        """Whether a run completed its fine-tuning, or the round refused what that has left."""
        return any(map(self._storage.exists, (f"{TUNED}/{WEIGHTS}", Refusal.KEY)))

    def _begin_corrected(self, reason: str, correct: Callable[[RemedyAttempts], bool]) -> _RoundEnd:
        """Replace the last run by a corrected one if that is possible."""
        assert self.attempts is not None, "it has begun"
        if self.attempts.asked_for and correct(self.attempts):
            self._corrected = True
            return _RoundEnd(again=True)
        left = f"; {self.attempts.left}" if self.attempts.left else ""
        return _RoundEnd(reason=f"{reason}{left}")


class RoundQueue(RunQueue[RoundRuns]):
    """Begins each round when the last one is complete, and begins it again if it crashed.

    Args:
        maker: makes the runs.
        correct: makes the run that replaces one that a rule stopped.

    Attributes:
        rounds: records of the complete rounds, from round 0; those of an earlier process at first.
        over: why no other round begins; "" while one may.
        rule: the rule that ended it; "" if none did.
        problem: what is wrong with the pruning as a whole; "" for nothing.

    Raises:
        CorruptData: the record of a round is damaged.
        StoreError: the folder of the models cannot be read or written.
    """

    def __init__(
        self, pruning: Pruning, maker: RunMaker, correct: Callable[[RemedyAttempts], bool]
    ) -> None:
        super().__init__()
        self.pruning = pruning
        self.rounds: list[RoundRecord] = []
        self.over = self.rule = self.problem = ""
        self._maker = maker
        self._correct = correct
        self._busy = False
        self._again: RoundRuns | None = None
        self._copy_origin()
        while (record := RoundRuns(pruning, len(self.rounds)).accepted_record()) is not None:
            self._add(record)
        if (observe := round_observer.get()) is not None:
            observe(self)

    def next(self) -> RoundRuns | None:
        """Return the next round; None while one is in progress, and at the end."""
        if self._busy:
            return None
        if is_removed(self.pruning.state, PruningRecord):
            self.problem = f"{self.pruning.state}: the folder was removed while the pruning ran"
        interrupted = INTERRUPTED.reason if INTERRUPTED.is_set() else ""
        self.over = self.over or self.problem or interrupted
        if self.over:
            return None
        again, self._again = self._again, None
        self._busy = True
        return again or RoundRuns(self.pruning, len(self.rounds))

    def begin(self, item: RoundRuns) -> RunPlace | None:
        """Return the place of a round's next run; None if it cannot be made."""
        try:
            if item.attempts is None:
                item.end_earlier()
            place = item.next_place(self._maker)
            place.begin()
        except VinedresserError as error:
            self._fail(str(error))
            return None
        return place

    def ended(self, item: RoundRuns) -> None:
        """Take the result of a round, or begin it again."""
        self._busy = False
        try:
            end = item.end(self._correct)
        except VinedresserError as error:
            self._fail(str(error))
            return
        if end.again:
            self._again = item
        elif end.record is not None:
            self._add(end.record)
        elif INTERRUPTED.is_set() or (end.refused and item.number > 1):
            # That no further round is possible is how a pruning ends.
            self.over = end.reason
        else:
            self._fail(end.reason)

    def _add(self, record: RoundRecord) -> None:
        if record.number != len(self.rounds):
            raise CorruptData(
                f"{round_folder(self.pruning.state, len(self.rounds))}/{RoundRecord.KEY}: is the "
                f"record of round {record.number}"
            )
        self.rounds.append(record)
        found = ending(self.rounds, self.pruning.table)
        if found is not None:
            self.rule, self.over = found

    def _fail(self, reason: str) -> None:
        self._busy = False
        self.problem = self.over = reason

    def _copy_origin(self) -> None:
        """Copy the rounds that a branch shares with the pruning from which it is branched."""
        if self.pruning.origin is None:
            return
        folder, last = self.pruning.origin
        for number in range(last + 1):
            there = round_folder(self.pruning.state, number)
            if there.exists():
                continue
            part, source = there.with_name(f"{there.name}.part"), round_folder(folder, number)
            shutil.rmtree(part, ignore_errors=True)
            try:
                shutil.copytree(source, part, symlinks=True)
                part.rename(there)
            except OSError as error:
                raise StoreError(f"{source}: cannot be copied: {error}") from error
