"""Committing segments: first the segment, then its index record."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from vinedresser.errors import KeyTaken, SecondWriter, StoreError
from vinedresser.objects import Storage
from vinedresser.store.index.codec import encode_record
from vinedresser.store.index.index_record import IndexRecord
from vinedresser.store.index.manifest import SPAN, ManifestBuilder
from vinedresser.store.records import manifest_key
from vinedresser.store.segments.packing import pack
from vinedresser.store.step_record import StepRecord


class Committer:
    """Commits the segments of one rank, numbered from 0 without gaps.

    Args:
        rank: rank of the writing process, which must be its only writer.
    """

    def __init__(self, storage: Storage, rank: int) -> None:
        self._storage = storage
        self._rank = rank
        self._seq = 0
        self._builder = ManifestBuilder(rank)
        # The last committed record, until it is in a manifest.
        self._committed: IndexRecord | None = None

    def commit(self, records: Sequence[StepRecord], dropped: int) -> None:
        """Store records as the next segment, so that readers see all of them or none.

        Args:
            records: at least one.
            dropped: number of records lost since the last commit.

        Raises:
            SecondWriter: another process has committed a segment with this number.
            StoreError: the storage refused; the number will be reused.
            CorruptData, TypeError, ValueError: a record is invalid (see `pack`).
        """
        packed = pack(records, rank=self._rank, seq=self._seq)
        self._storage.put(packed.key, packed.parts())
        record = packed.record(dropped=dropped)
        try:
            self._put_once(record.key, encode_record(record))
        except StoreError:
            # Free the space of a segment that cannot be committed.
            with suppress(StoreError):
                self._storage.delete(packed.key)
            raise
        self._seq += 1
        self._committed = record

    def compact(self) -> None:
        """Add the last commit to a manifest, and store the manifest if that completes it.

        Raises:
            SecondWriter: another process has stored this manifest.
            StoreError: the storage refused; the run is readable without it.
            MemoryError: the manifest does not fit into memory; the run is readable without it.
        """
        record, self._committed = self._committed, None
        if record is None:
            return
        try:
            manifest = self._builder.add(record)
        except MemoryError:
            self._builder.omit()
            raise
        if manifest is not None:
            self._put_once(manifest_key(self._rank, self._seq // SPAN - 1), manifest)

    def _put_once(self, key: str, content: bytes) -> None:
        try:
            self._storage.put(key, [content], exclusive=True)
        except KeyTaken as error:
            # The content is equal if an earlier attempt of this put succeeded unnoticed.
            if self._storage.get(key) != content:
                raise SecondWriter(
                    f"{self._storage.location}/{key}: another process writes rank {self._rank}"
                ) from error
