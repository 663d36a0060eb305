"""Reading one rank's index records: one, all that there are, or as they are committed."""

from __future__ import annotations

from vinedresser.capture.store.index import IndexRecord
from vinedresser.capture.store.layout import LayoutPool
from vinedresser.capture.store.problems import Problems
from vinedresser.capture.store.segment import Segment
from vinedresser.errors import Damaged, KeyMissing
from vinedresser.infra.run_directory import index_key
from vinedresser.infra.storage import Storage

__all__ = ["IndexCursor", "listed_seqs", "read_index"]


def read_index(
    storage: Storage, rank: int, seq: int, pool: LayoutPool, problems: Problems
) -> IndexRecord | None:
    """Read one index record; return None when it is damaged, and note that.

    Raises:
        KeyMissing: it is not there (yet).
    """
    key = index_key(rank, seq)
    content = storage.get(key)
    try:
        return IndexRecord.decode(content, pool)
    except Damaged as error:
        problems.note(f"{storage.location}/{key}: {error}; what was captured there cannot be read")
        return None


def listed_seqs(storage: Storage, rank: int, after: int = -1) -> list[int]:
    """List the numbers of a rank's index records that are greater than one, ascending."""
    folder = index_key(rank, 0).rpartition("/")[0]
    # All keys have the same length, so that they sort by number.
    keys = storage.list(f"{folder}/", after=index_key(rank, after) if after >= 0 else "")
    return [int(key.rpartition("/")[2].partition(".")[0]) for key in keys]


class IndexCursor:
    """Walks over the segments of one rank in the order of their numbers; a look costs O(1).

    A damaged index record is passed over, and so is a missing one as soon as later ones exist: what
    they committed is lost, the rest is not.

    Args:
        storage: the run's.
        rank: whose segments.
        pool: gives the layouts.
        problems: where damage is noted.

    Attributes:
        records: how many records the segments that were returned have.
    """

    def __init__(self, storage: Storage, rank: int, pool: LayoutPool, problems: Problems) -> None:
        self._storage = storage
        self._rank = rank
        self._pool = pool
        self._problems = problems
        self._seq = 0
        self.records = 0

    def next(self) -> Segment | None:
        """Return the next segment, None when there is none yet."""
        while True:
            try:
                record = read_index(
                    self._storage, self._rank, self._seq, self._pool, self._problems
                )
            except KeyMissing:
                if not self._is_there(self._seq + 1):
                    return None
                # Commits come in order, so the one that was not there may be by now.
                if not self._is_there(self._seq):
                    self._miss(self._seq + 1)
                continue
            self._seq += 1
            if record is not None:
                segment = Segment(self._storage, record)
                self.records += len(segment)
                return segment

    def skip_gap(self) -> bool:
        """Pass over missing records to the next one there is; return False when there is none.

        This lists the rank's records: it is for a run that is over, or just being opened.
        """
        ahead = listed_seqs(self._storage, self._rank, self._seq - 1)
        if ahead and ahead[0] > self._seq:
            self._miss(ahead[0])
        return bool(ahead)

    def _is_there(self, seq: int) -> bool:
        return self._storage.exists(index_key(self._rank, seq))

    def _miss(self, until: int) -> None:
        first, last = index_key(self._rank, self._seq), index_key(self._rank, until - 1)
        span = first if first == last else f"{first} to {last}"
        self._problems.note(
            f"{self._storage.location}/{span}: missing though later records are there; what was "
            "captured there cannot be read"
        )
        self._seq = until
