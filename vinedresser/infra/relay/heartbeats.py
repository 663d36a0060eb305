"""Signs of life in the store: a rank lives there until all that it captured is there."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, replace

from vinedresser.processes import is_alive, this_process
from vinedresser.store.records import Heartbeat, heartbeat_key, heartbeats, write_record
from vinedresser.store.storage import LocalStorage, Storage

__all__ = ["Heartbeats"]

# Seconds between two heartbeats of a rank in the store. To readers elsewhere it is silent after
# five without, and gone after a minute.
_BEAT = 2.0


class Heartbeats:
    """Brings heartbeats to the store, with the relay in the place of the writer.

    What is in the spool is not lost when its writer dies, so in the store the rank lives as long
    as the relay, which writes there; with the last of its segments come its own last words.

    Args:
        spool: the run's directory here.
        store: where it belongs.
    """

    def __init__(self, spool: LocalStorage, store: Storage) -> None:
        self._spool = spool
        self._store = store
        self._relay = asdict(this_process())
        # Of each rank what was brought last, whether it is its last word, and when.
        self._brought: dict[int, tuple[Heartbeat, bool, float]] = {}

    def read(self) -> list[Heartbeat]:
        """Return the heartbeats in the spool; to be read before looking for segments."""
        return heartbeats(self._spool)

    def bring(self, beats: list[Heartbeat], behind: Collection[int]) -> bool:
        """Bring what was read.

        Args:
            beats: from `read`.
            behind: ranks of which not all is in the store that was committed when they were read.

        Returns:
            Whether all ranks have ended and their last words are in the store.

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
            # Of a rank that has died, too: it lives on until all of it is there.
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
        # Elsewhere nobody can look whether its process lives.
        return replace(beat, gone=not beat.closed)
