"""Fetching stop requests and other messages to the training from the store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from vinedresser.errors import KeyMissing, KeyTaken, StoreError
from vinedresser.objects import LocalStorage, Storage
from vinedresser.plain_logs import plain_logger
from vinedresser.store.records import (
    CaptureRequest,
    StopRecord,
    TrainerRequest,
    WaitingRecord,
    capture_request_key,
    first_free,
    trainer_request_key,
)

_LOG = plain_logger(__name__)

# Seconds between two polls, and at most while the store is unavailable.
_LOOK, _LONGEST = 0.25, 4.0


class Fetcher:
    """Polls the store for stop requests, waiting readers and other requests, on a thread.

    Args:
        spool: the run's local directory.
        store: the run's location in the store.
    """

    def __init__(self, spool: LocalStorage, store: Storage) -> None:
        self._spool = spool
        self._store = store
        self._stopped = False
        self._waiting = b""
        # The number of the next request of each kind, by the function that returns its key.
        self._next: dict[Callable[[int], str], int] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fetcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        pause = _LOOK
        while not self._end.wait(pause):
            try:
                self._fetch()
                pause = _LOOK
            except StoreError as error:
                # Uploads meet the same outage and report it to the user.
                _LOG.debug("cannot fetch requests: %s", error)
                pause = min(2 * pause, _LONGEST)

    def _fetch(self) -> None:
        if not self._next:
            self._next = {
                key: first_free(self._spool, kind, key)
                for kind, key in (
                    (CaptureRequest.KEY, capture_request_key),
                    (TrainerRequest.KEY, trainer_request_key),
                )
            }
        if not self._stopped:
            self._stopped = self._take(StopRecord.KEY)
        waiting = self._get(WaitingRecord.KEY)
        if waiting is not None and waiting != self._waiting:
            self._waiting = waiting
            self._spool.put(WaitingRecord.KEY, [waiting])
        for key in self._next:
            while self._take(key(self._next[key])):
                self._next[key] += 1

    def _take(self, key: str) -> bool:
        """Fetch an object that is never replaced; return whether it exists."""
        content = self._get(key)
        if content is None:
            return False
        with suppress(KeyTaken):
            self._spool.put(key, [content], exclusive=True)
        return True

    def _get(self, key: str) -> bytes | None:
        try:
            return self._store.get(key)
        except KeyMissing:
            return None
