"""Reading the index of one rank: single records, all of them, or as they are committed."""

from __future__ import annotations

from collections import deque

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.store.index.codec import decode_record
from vinedresser.store.index.index_record import IndexRecord
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.index.manifest import SPAN, decode_manifest
from vinedresser.store.problems import Problems
from vinedresser.store.records import index_key, manifest_key, record_number
from vinedresser.store.segments.segment import Segment

__all__ = ["IndexCursor", "IndexReader"]

# Maximum number of consecutive objects requested at a time.
_MAX_CONCURRENT = 16


class IndexReader:
    """Reads the index records and manifests of one rank.

    Args:
        pool: shares equal layouts.
        problems: collects corrupt data.
    """

    def __init__(self, storage: Storage, rank: int, pool: LayoutPool, problems: Problems) -> None:
        self.storage = storage
        self.rank = rank
        self._pool = pool
        self._problems = problems

    def exists(self, seq: int) -> bool:
        """Return whether a record exists."""
        return self.storage.exists(index_key(self.rank, seq))

    def records(self, first: int, count: int) -> list[IndexRecord | None]:
        """Return consecutive records, up to the first missing one.

        Args:
            first: number of the first record.
            count: maximum number of records.

        Returns:
            The records; None for a corrupt one, which is added to the problems.

        Raises:
            StoreError: the storage refused.
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
                self.note(f"{key}: {error}; the data of this segment cannot be read")
                found.append(None)
        return found

    def manifests(self, first: int, count: int) -> list[list[IndexRecord]]:
        """Return the records of consecutive manifests, up to the first missing or corrupt one.

        A corrupt manifest is added to the problems.

        Args:
            first: number of the first manifest.
            count: maximum number of manifests.

        Raises:
            StoreError: the storage refused.
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
        """Return the number of the next existing record, found by listing; None if none exists.

        Other names, such as those of an interrupted copy, are ignored.
        """
        folder = index_key(self.rank, 0).rpartition("/")[0]
        try:
            keys = self.storage.list(f"{folder}/")
        except CorruptData as error:
            self._problems.note(f"{error}; no data of rank {self.rank} can be read")
            return None
        for key in keys:
            number = record_number(key, self.rank)
            if number is not None and number > seq:
                if self.exists(number):
                    return number
                self.note(f"{key}: not a file; the data of this segment cannot be read")
        return None

    def note(self, sentence: str) -> None:
        """Add a sentence that begins with a key to the problems."""
        self._problems.note(f"{self.storage.location}/{sentence}")


class IndexCursor:
    """Iterates over the segments of one rank in the order of their numbers; a poll costs O(1).

    Old segments are read from manifests, and consecutive objects several at a time. A corrupt index
    record is skipped, and so is a missing one once later ones exist: only their segments are lost.

    Args:
        pool: shares equal layouts.
        problems: collects corrupt data.

    Attributes:
        records: total number of records in the segments returned so far.
    """

    def __init__(self, storage: Storage, rank: int, pool: LayoutPool, problems: Problems) -> None:
        self._storage = storage
        self._reader = IndexReader(storage, rank, pool, problems)
        self._seq = 0
        self._ahead: deque[IndexRecord | None] = deque()
        # Number of consecutive objects found so far: as many are requested next.
        self._manifests = self._singles = 0
        # Manifests before this one are not requested (again).
        self._untried = 0
        self.records = 0

    def next(self) -> Segment | None:
        """Return the next segment; None if there is none yet."""
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
        """Skip missing records up to the next existing one; return False if there is none.

        This lists the rank's records: use it for a run that has ended or is just being opened.
        """
        found = self._reader.next_after(self._seq - 1)
        if found is not None and found > self._seq:
            self._miss(found)
        return found is not None

    def _fill(self) -> bool:
        """Read the next records; return False if there are none yet."""
        return self._fill_from_manifests() or self._fill_from_records() or self._pass_one()

    def _fill_from_manifests(self) -> bool:
        number, inside = divmod(self._seq, SPAN)
        if inside or number < self._untried:
            return False
        count = _request_count(self._manifests)
        found = self._reader.manifests(number, count)
        self._ahead.extend(record for records in found for record in records)
        self._seq += len(found) * SPAN
        whole = len(found) == count
        self._manifests = self._manifests + count if whole else 0
        self._untried = number + len(found) + (not whole)
        return bool(found)

    def _fill_from_records(self) -> bool:
        # Not beyond the start of the next possible manifest.
        count = min(_request_count(self._singles), SPAN - self._seq % SPAN)
        found = self._reader.records(self._seq, count)
        self._ahead.extend(found)
        self._seq += len(found)
        self._singles = self._singles + count if len(found) == count else 0
        return bool(found)

    def _pass_one(self) -> bool:
        """Skip the next record if a later one exists; return whether there is more to read."""
        if not self._reader.exists(self._seq + 1):
            return False
        # Commits are in order, so the record that was missing may exist by now.
        if not self._reader.exists(self._seq):
            self._miss(self._seq + 1)
        return True

    def _miss(self, until: int) -> None:
        rank = self._reader.rank
        first, last = index_key(rank, self._seq), index_key(rank, until - 1)
        span = first if first == last else f"{first} to {last}"
        self._reader.note(
            f"{span}: missing or not a file although later records exist; the data of these "
            "segments cannot be read"
        )
        self._seq = until


def _request_count(streak: int) -> int:
    """Return how many objects to request after a streak of existing ones."""
    return min(max(streak, 1), _MAX_CONCURRENT)
