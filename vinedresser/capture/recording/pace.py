"""The factor of the intervals of captures at each step, of one process or of all ranks."""

from __future__ import annotations

import os
from bisect import bisect_right

from vinedresser.capture.shield import Shield
from vinedresser.objects import LocalStorage
from vinedresser.store.records import CapturePaceRecord, read_record, write_record

__all__ = ["Pace", "SharedPace"]

# Train steps between a decision of rank 0 and its effect. Ranks that wait for one another in each
# step are at most one step apart; those of several hosts see a new file within a second.
_LAG = 100
# Older changes are of steps that no rank is at any more.
_KEPT = 64


class Pace:
    """The factor of the intervals of elastic save configs at each step; 1 at first."""

    # Steps between a decision and its effect.
    lag = 1

    def __init__(self) -> None:
        self._changes: list[tuple[int, int]] = []

    def at(self, step: int) -> int:
        """Return the factor at a step."""
        place = bisect_right(self._changes, step, key=lambda change: change[0])
        return self._changes[place - 1][1] if place else 1

    def change(self, step: int, factor: int) -> int | None:
        """Change the factor at the end of a train step.

        Returns:
            The first step with the new factor; None: the change cannot be stored, and the factor
            remains as it is.
        """
        since = step + self.lag
        self._changes = [*self._changes, (since, factor)][-_KEPT:]
        return since


class SharedPace(Pace):
    """The factor of all ranks of a run: rank 0 decides, and all change it at the same step.

    Nobody waits: rank 0 writes its decision down before it takes effect, and the others look when
    they plan a step in which something may be left out. A rank that is ahead by more steps than the
    lag captures other steps than its peers until it has read the decision.

    Args:
        storage: the run directory, which all ranks share.
        rank: rank of this process.
        shield: reports what fails in reading and writing; then the factor remains as it is.
    """

    lag = _LAG

    def __init__(self, storage: LocalStorage, rank: int, shield: Shield) -> None:
        super().__init__()
        self._storage = storage
        self._look = shield.guard("reading how often all ranks capture", self._read)
        self._tell = shield.guard("writing how often all ranks capture", self._write)
        self._follows = rank > 0
        # A path costs a tenth of a request to the storage.
        self._path = os.path.join(storage.location, CapturePaceRecord.KEY)
        self._seen: tuple[int, int] | None = None

    def at(self, step: int) -> int:
        """See `Pace.at`."""
        if self._follows:
            self._look()
        return super().at(step)

    def change(self, step: int, factor: int) -> int | None:
        """See `Pace.change`."""
        before = self._changes
        since = super().change(step, factor)
        if self._tell():
            return since
        self._changes = before
        return None

    def _write(self) -> bool:
        write_record(self._storage, CapturePaceRecord(list(map(list, self._changes))))
        return True

    def _read(self) -> None:
        """Read the decisions of rank 0 if they are new."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return
        # Each decision is another file, so a new one may have the number of one before the last.
        seen = (found.st_ino, found.st_mtime_ns)
        if seen == self._seen:
            return
        self._seen = seen
        record = read_record(self._storage, CapturePaceRecord)
        if record is not None:
            self._changes = [(since, factor) for since, factor in record.changes]
