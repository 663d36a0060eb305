"""Heartbeats in the store: a rank lives there until all its data is uploaded."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, replace

from vinedresser.objects import LocalStorage, Storage
from vinedresser.processes import is_alive, this_process
from vinedresser.store.records import Heartbeat, heartbeat_key, heartbeats, write_record

# Seconds between two heartbeats of a rank in the store. Remote readers consider it silent after
# five seconds without one, and dead after a minute.
_BEAT = 2.0


class Heartbeats:
    """Uploads heartbeats that name the relay as the writer.

    Data in the spool survives its writer, so in the store a rank lives as long as the relay. The
    rank's own final heartbeat follows its last segment.

    Args:
        spool: the run's local directory.
        store: the run's location in the store.
    """

    def __init__(self, spool: LocalStorage, store: Storage) -> None:
        self._spool = spool
        self._store = store
        self._relay = asdict(this_process())
        # By rank: the last uploaded heartbeat, whether it was final, and the time.
        self._brought: dict[int, tuple[Heartbeat, bool, float]] = {}

    def read(self) -> list[Heartbeat]:
        """Return the heartbeats in the spool; call it before listing segments."""
        return heartbeats(self._spool)

    def bring(self, beats: list[Heartbeat], behind: Collection[int]) -> bool:
        """Upload heartbeats.

        Args:
            beats: the result of `read`.
            behind: ranks with segments that were committed before `read` and are not uploaded yet.

        Returns:
            Whether all ranks have ended and their final heartbeats are in the store.

        Raises:
            StoreError: the store refused.
        """
        finals = [self._bring(beat, beat.rank in behind) for beat in beats]
        return all(finals)

    def _bring(self, beat: Heartbeat, behind: bool) -> bool:
        ended = beat.closed or is_alive(beat.identity()) is False
        final = ended and not behind
        now = time.monotonic()
        known, was_final, at = self._brought.get(beat.rank, (None, False, -_BEAT))
        if final:
            due = not was_final or known != beat
        else:
            # A dead rank, too, stays alive in the store until all its data is there.
            due = now >= at + _BEAT and (ended or known != beat)
        if due:
            told = self._last_words(beat) if final else self._ours(beat, ended=ended)
            write_record(self._store, told, key=heartbeat_key(beat.rank))
            self._brought[beat.rank] = (beat, final, now)
        return final

    def _ours(self, beat: Heartbeat, *, ended: bool) -> Heartbeat:
        at = time.time() if ended else beat.time
        return replace(beat, process=self._relay, closed=False, time=at)

    @staticmethod
    def _last_words(beat: Heartbeat) -> Heartbeat:
        # Other machines cannot check whether its process lives.
        return replace(beat, gone=not beat.closed)
