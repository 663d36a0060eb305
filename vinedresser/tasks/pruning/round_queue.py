"""The rounds of a pruning, one after the other, as a queue of runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextvars import ContextVar

from vinedresser.errors import CorruptData, StoreError, VinedresserError
from vinedresser.pruning.folders import round_folder
from vinedresser.pruning.rounds.ending import ending
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.spec import PruningRecord
from vinedresser.tasks.config.prune_file import Pruning
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.prepare import RunMaker
from vinedresser.tasks.lifecycle.run_queue import RunQueue
from vinedresser.tasks.parents.kinds import is_removed
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.pruning.round_runs import RoundRuns
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts

__all__ = ["RoundQueue", "round_observer"]

# Called with the queue of a pruning that begins in this process.
round_observer: ContextVar[Callable[[RoundQueue], None] | None] = ContextVar(
    "round_observer", default=None
)


class RoundQueue(RunQueue[RoundRuns]):
    """Begins each round when the last one is complete, and begins it again if it crashed.

    Args:
        maker: makes the runs.
        correct: makes the run that replaces one that a rule stopped.

    Attributes:
        pruning: the pruning.
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
