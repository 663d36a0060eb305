"""Uploading committed segments in the order in which they become readable."""

from __future__ import annotations

import re
from concurrent.futures import Executor
from pathlib import Path

from vinedresser.errors import KeyTaken, SecondWriter
from vinedresser.infra.supervise.relay.blocks import blocks
from vinedresser.objects import LocalStorage, Storage
from vinedresser.store.records import index_key, record_number, segment_key

__all__ = ["AT_ONCE", "Segments"]

# Segments of one rank that are uploaded concurrently, and so held in memory, per turn of the relay.
AT_ONCE = 4
_MANIFEST = re.compile(r"manifests/[0-9]+/[0-9]{12,}\.json")


class Segments:
    """The segments that are committed in a spool and not yet in the store.

    A segment is put before the index record that commits it, and the records of a rank are put in
    order, all of them exclusively. Uploaded segments are removed from the spool.

    Args:
        spool: the run's local directory.
        store: the run's location in the store.
        pool: uploads segments of a rank concurrently.
    """

    def __init__(self, spool: LocalStorage, store: Storage, pool: Executor) -> None:
        self._spool = spool
        self._store = store
        self._pool = pool
        self._root = Path(spool.location)

    def pending(self) -> dict[int, list[int]]:
        """Return the numbers of the pending segments, ascending, by rank."""
        waiting: dict[int, list[int]] = {}
        for rank in map(int, filter(str.isdecimal, self._spool.folders("index/"))):
            numbers = (record_number(key, rank) for key in self._spool.list(f"index/{rank}/"))
            # Other names, such as those of an interrupted copy, are not part of the run.
            if seqs := sorted(number for number in numbers if number is not None):
                waiting[rank] = seqs
        return waiting

    def manifests(self) -> list[tuple[int, str]]:
        """Return the pending manifests with their ranks; call it before `pending`.

        A manifest repeats index records that were committed before it.
        """
        return [
            (int(key.split("/")[1]), key)
            for key in self._spool.list("manifests/")
            if _MANIFEST.fullmatch(key)
        ]

    def bring_manifest(self, key: str) -> None:
        """Upload a manifest whose index records are all in the store.

        Raises:
            SecondWriter: the store has other content under its key.
            StoreError: the store refused.
        """
        self._put_once(key)
        self._spool.delete(key)

    def bring(self, rank: int, seqs: list[int]) -> None:
        """Upload the first of a rank's pending segments, at most `AT_ONCE`.

        Args:
            seqs: numbers of its pending segments, ascending.

        Raises:
            SecondWriter: the store has other content under one of their keys.
            StoreError: the store refused; the remaining segments stay pending.
        """
        some = seqs[:AT_ONCE]
        uploads = [self._pool.submit(self._put_segment, rank, seq) for seq in some]
        try:
            for seq, upload in zip(some, uploads, strict=True):
                upload.result()
                self._commit(rank, seq)
        finally:
            # No upload may still be running when the next attempt starts.
            for upload in uploads:
                upload.exception()

    def _put_segment(self, rank: int, seq: int) -> None:
        key = segment_key(rank, seq)
        if not self._spool.exists(key):
            # An earlier relay uploaded it, and was killed before it removed the record.
            if not self._store.exists(key):
                raise SecondWriter(
                    f"{self._spool.location}/{key}: was removed before it was uploaded"
                )
            return
        self._put_once(key)

    def _commit(self, rank: int, seq: int) -> None:
        key = index_key(rank, seq)
        self._put_once(key)
        # The segment first: a record without a segment means that both are in the store.
        self._spool.delete(segment_key(rank, seq))
        self._spool.delete(key)

    def _put_once(self, key: str) -> None:
        """Put an immutable file of the spool, which may be in the store already."""
        try:
            self._store.put(key, blocks(self._root, key), exclusive=True)
        except KeyTaken as error:
            if self._store.get(key) != self._spool.get(key):
                raise SecondWriter(
                    f"{self._store.location}/{key}: has other content: another process "
                    "writes this run"
                ) from error
