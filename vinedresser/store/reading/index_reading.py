"""Reading one rank's index: one record, all that there are, or as they are committed."""

from __future__ import annotations

from collections import deque

from vinedresser.errors import CorruptData
from vinedresser.store.index.decoding import decode_record
from vinedresser.store.index.index_record import IndexRecord
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.index.manifest import SPAN, decode_manifest
from vinedresser.store.problems import Problems
from vinedresser.store.records import index_key, manifest_key
from vinedresser.store.segments.segment import Segment
from vinedresser.store.storage import Storage

__all__ = ["IndexCursor", "IndexReader"]

# Objects that are asked for at a time, at the most, when many follow each other.
_AT_ONCE = 16


class IndexReader:
    """Reads the index records and manifests of one rank.

    Args:
        storage: the run's.
        rank: whose.
        pool: gives the layouts.
        problems: where damage is noted.
    """

    def __init__(self, storage: Storage, rank: int, pool: LayoutPool, problems: Problems) -> None:
        self.storage = storage
        self.rank = rank
        self._pool = pool
        self._problems = problems

    def exists(self, seq: int) -> bool:
        """Say whether a record is there."""
        return self.storage.exists(index_key(self.rank, seq))

    def records(self, first: int, count: int) -> list[IndexRecord | None]:
        """Return records that follow each other, as many of them as there are.

        Args:
            first: the number of the first.
            count: how many to ask for.

        Returns:
            Those before the first that is not there (yet); None for one that is damaged, which is
            noted.
        """
        keys = [index_key(self.rank, first + place) for place in range(count)]
        found: list[IndexRecord | None] = []
        for key, content in zip(keys, self.storage.get_many(keys), strict=True):
            if content is None:
                break
            seq = first + len(found)
            try:
                found.append(decode_record(content, self._pool, self.rank, seq))
            except CorruptData as error:
                self.note(f"{key}: {error}; what was captured there cannot be read")
                found.append(None)
        return found

    def manifests(self, first: int, count: int) -> list[list[IndexRecord]]:
        """Return the records of manifests that follow each other, as many of them as there are.

        Args:
            first: the number of the first manifest.
            count: how many to ask for.

        Returns:
            Those before the first that is not there (yet), or is damaged, which is noted.
        """
        keys = [manifest_key(self.rank, first + place) for place in range(count)]
        found: list[list[IndexRecord]] = []
        for key, content in zip(keys, self.storage.get_many(keys), strict=True):
            if content is None:
                break
            number = first + len(found)
            try:
                found.append(decode_manifest(content, self._pool, self.rank, number))
            except CorruptData as error:
                self.note(f"{key}: {error}; the index records are read instead")
                break
        # A manifest commits nothing, and may have been uploaded before its last record was.
        if found and not self.exists((first + len(found)) * SPAN - 1):
            return []
        return found

    def next_after(self, seq: int) -> int | None:
        """Return the number of the first record that is there after a number; this lists them."""
        folder = index_key(self.rank, 0).rpartition("/")[0]
        # All keys have the same length, so that they sort by number.
        after = index_key(self.rank, seq) if seq >= 0 else ""
        keys = self.storage.list(f"{folder}/", after=after)
        stems = (key.rpartition("/")[2].partition(".")[0] for key in keys)
        return next((int(stem) for stem in stems if stem.isdecimal()), None)

    def note(self, sentence: str) -> None:
        """Note what is wrong with a key, by which the sentence begins."""
        self._problems.note(f"{self.storage.location}/{sentence}")


class IndexCursor:
    """Walks over the segments of one rank in the order of their numbers; a look costs O(1).

    What was committed long ago is read from manifests, and several objects at a time as long as one
    follows the other. A damaged index record is passed over, and so is a missing one as soon as
    later ones exist: what they committed is lost, the rest is not.

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
        self._reader = IndexReader(storage, rank, pool, problems)
        self._seq = 0
        self._ahead: deque[IndexRecord | None] = deque()
        # How many objects were there one behind the other: so many are asked for at once.
        self._manifests = self._singles = 0
        # Manifests before this one are not asked for, or not any more.
        self._untried = 0
        self.records = 0

    def next(self) -> Segment | None:
        """Return the next segment, None when there is none yet."""
        while True:
            while not self._ahead:
                if not self._fill():
                    return None
            record = self._ahead.popleft()
            if record is not None:
                segment = Segment(self._storage, record)
                self.records += len(segment)
                return segment

    def skip_gap(self) -> bool:
        """Pass over missing records to the next one there is; return False when there is none.

        This lists the rank's records: it is for a run that is over, or just being opened.
        """
        found = self._reader.next_after(self._seq - 1)
        if found is not None and found > self._seq:
            self._miss(found)
        return found is not None

    def _fill(self) -> bool:
        """Read what follows; return False when there is nothing yet."""
        return self._fill_from_manifests() or self._fill_from_records() or self._pass_one()

    def _fill_from_manifests(self) -> bool:
        number, inside = divmod(self._seq, SPAN)
        if inside or number < self._untried:
            return False
        count = _at_once(self._manifests)
        found = self._reader.manifests(number, count)
        self._ahead.extend(record for records in found for record in records)
        self._seq += len(found) * SPAN
        whole = len(found) == count
        self._manifests = self._manifests + count if whole else 0
        self._untried = number + len(found) + (not whole)
        return bool(found)

    def _fill_from_records(self) -> bool:
        # No further than to where the next manifest may begin.
        count = min(_at_once(self._singles), SPAN - self._seq % SPAN)
        found = self._reader.records(self._seq, count)
        self._ahead.extend(found)
        self._seq += len(found)
        self._singles = self._singles + count if len(found) == count else 0
        return bool(found)

    def _pass_one(self) -> bool:
        """Look whether the next record will not come any more, since a later one is there."""
        if not self._reader.exists(self._seq + 1):
            return False
        # Commits come in order, so the one that was not there may be by now.
        if not self._reader.exists(self._seq):
            self._miss(self._seq + 1)
        return True

    def _miss(self, until: int) -> None:
        rank = self._reader.rank
        first, last = index_key(rank, self._seq), index_key(rank, until - 1)
        span = first if first == last else f"{first} to {last}"
        self._reader.note(
            f"{span}: missing though later records are there; what was captured there cannot be "
            "read"
        )
        self._seq = until


def _at_once(streak: int) -> int:
    """Return how many objects to ask for when so many in a row were there."""
    return min(max(streak, 1), _AT_ONCE)
