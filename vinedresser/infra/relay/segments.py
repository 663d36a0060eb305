"""Bringing committed segments to the store, in the order that makes them readable."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from pathlib import Path

from vinedresser.errors import KeyTaken, SecondWriter
from vinedresser.infra.relay.blocks import blocks
from vinedresser.store.records import index_key, segment_key
from vinedresser.store.storage import LocalStorage, Storage

__all__ = ["AT_ONCE", "Segments"]

# Segments of one rank that are uploaded at the same time, so in memory, and brought before the
# relay looks after other things again.
AT_ONCE = 4


class Segments:
    """The segments of a spool, as far as they are committed in it and not yet in the store.

    Each segment is put before the index record that commits it, and the records of a rank in their
    order, all of them exclusively; what is safe in the store is removed from the spool.

    Args:
        spool: the run's directory here.
        store: where it belongs.
        pool: uploads segments of a rank at the same time.
    """

    def __init__(self, spool: LocalStorage, store: Storage, pool: Executor) -> None:
        self._spool = spool
        self._store = store
        self._pool = pool
        self._root = Path(spool.location)

    def pending(self) -> dict[int, list[int]]:
        """Return the numbers of the segments that wait, ascending, by rank."""
        waiting: dict[int, list[int]] = {}
        for rank in _numbers(self._root / "index"):
            seqs = sorted(_numbers(self._root / "index" / str(rank)))
            if seqs:
                waiting[rank] = seqs
        return waiting

    def manifests(self) -> list[tuple[int, str]]:
        """Return the manifests that wait, by rank; to be looked up before `pending`.

        Each repeats index records that were committed before it was made.
        """
        return [
            (int(key.split("/")[1]), key)
            for key in self._spool.list("manifests/")
            if key.count("/") == 2
        ]

    def bring_manifest(self, key: str) -> None:
        """Bring a manifest; all records that it repeats are in the store.

        Raises:
            SecondWriter: the store has other content under its key.
            StoreError: the store refused.
        """
        self._put_once(key)
        self._spool.delete(key)

    def bring(self, rank: int, seqs: list[int]) -> None:
        """Bring the first of a rank's segments to the store, at most `AT_ONCE`.

        Args:
            rank: whose.
            seqs: their numbers, ascending.

        Raises:
            SecondWriter: the store has other content under one of their keys.
            StoreError: the store refused; what is not there yet waits on.
        """
        some = seqs[:AT_ONCE]
        uploads = [self._pool.submit(self._put_segment, rank, seq) for seq in some]
        try:
            for seq, upload in zip(some, uploads, strict=True):
                upload.result()
                self._commit(rank, seq)
        finally:
            # None of them may be under way when the next attempt begins.
            for upload in uploads:
                upload.exception()

    def _put_segment(self, rank: int, seq: int) -> None:
        key = segment_key(rank, seq)
        if not self._spool.exists(key):
            # It is in the store, but its record had no time to leave the spool after it.
            if not self._store.exists(key):
                raise SecondWriter(
                    f"{self._spool.location}/{key}: was taken away before it was uploaded"
                )
            return
        self._put_once(key)

    def _commit(self, rank: int, seq: int) -> None:
        key = index_key(rank, seq)
        self._put_once(key)
        # The segment first: a record without it says that both are in the store.
        self._spool.delete(segment_key(rank, seq))
        self._spool.delete(key)

    def _put_once(self, key: str) -> None:
        """Put a file of the spool that nobody ever changes; it may be there already."""
        try:
            self._store.put(key, blocks(self._root / key), exclusive=True)
        except KeyTaken as error:
            if self._store.get(key) != self._spool.get(key):
                raise SecondWriter(
                    f"{self._store.location}/{key}: has other content; another process writes "
                    "this run"
                ) from error


def _numbers(folder: Path) -> list[int]:
    """Return the numbers by which a folder's entries are called, in no order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    stems = (name.partition(".")[0] for name in names)
    return [int(stem) for stem in stems if stem.isdecimal()]
