"""The upload of one spool, from claiming the run to its exit record."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vinedresser.errors import KeyTaken, NotAFile, RunError, RunRemoved, StillRunning, StoreFull
from vinedresser.infra.supervise.launcher import settle
from vinedresser.infra.supervise.relay.claiming import claim_rank, claim_run
from vinedresser.infra.supervise.relay.fetching import Fetcher
from vinedresser.infra.supervise.relay.files import Files
from vinedresser.infra.supervise.relay.heartbeats import Heartbeats
from vinedresser.infra.supervise.relay.segments import AT_ONCE, Segments
from vinedresser.objects import LocalStorage, Storage
from vinedresser.objects.files import is_missing
from vinedresser.objects.retrying import backoff
from vinedresser.processes import ProcessIdentity, is_alive
from vinedresser.store.records import ExitRecord, RunRecord
from vinedresser.store.spool import PRIVATE, Target

# Seconds between two looks for segments, for other files, and whether the training has ended.
_LOOK, _FILES, _LIFE = 0.02, 0.25, 1.0
# Seconds of the first and of the longest pause while the store is unavailable.
_FIRST, _LONGEST = 0.2, 3.0


class Relay:
    """Uploads a spool while its training runs, until the run has ended.

    Objects appear in the store in the order of a local run directory: a segment before the record
    that commits it, the exit record last. The relay returns once the training has ended in any
    way and everything is in the store.

    Args:
        target: where the run belongs.
        store: the storage at that location.
        say: shows a sentence to the user.
    """

    def __init__(
        self, folder: Path, target: Target, store: Storage, say: Callable[[str], object]
    ) -> None:
        self._folder = folder
        self._target = target
        self._spool = LocalStorage(folder)
        self._store = store
        self._outage = _Outage(
            say, f"captured data waits in {folder} and is uploaded later; training continues"
        )
        self._files = Files(self._spool, store, target.rank)
        self._heartbeats = Heartbeats(self._spool, store)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="upload")
        self._segments = Segments(self._spool, store, self._pool)
        self._files_at = self._life_at = 0.0
        self._over = False

    def claim(self) -> None:
        """Claim the location in the store.

        Raises:
            AlreadyARun: the location holds another run.
            SecondWriter: another process has claimed the rank.
            NotARun: neither the spool nor the store has a run record.
            StoreError: the store refused.
        """
        if self._target.rank:
            claim_rank(self._spool, self._store, self._target.rank)
        else:
            claim_run(self._spool, self._store)

    def run(self) -> None:
        """Upload everything; return when the run has ended and all of it is in the store.

        Raises:
            RunRemoved: the spool was removed.
            SecondWriter: the store has other content under a key of this run.
            CorruptData: a record of the run cannot be read.
        """
        fetcher = Fetcher(self._spool, self._store)
        try:
            while True:
                try:
                    done, idle = self._turn()
                    # What is no longer there was not listed.
                    self._refuse_removed()
                except (NotAFile, RunError):
                    # Damage of the spool, or another run in its place: not an outage.
                    self._refuse_removed()
                    raise
                except RunRemoved:
                    raise
                except OSError as error:
                    self._refuse_removed()
                    # Of the store, or of the spool, such as a moment without file descriptors.
                    time.sleep(self._outage.failed(error))
                    continue
                self._outage.succeeded(self._store.location)
                if done:
                    return
                if idle:
                    time.sleep(_LOOK)
        finally:
            fetcher.close()
            self._pool.shutdown()

    def _refuse_removed(self) -> None:
        """Fail if the spool is gone: the upload would never be complete."""
        if is_missing(self._folder / PRIVATE):
            raise RunRemoved(
                f"{self._folder}: was removed before all of it was uploaded to "
                f"{self._store.location}; the rest is lost"
            )

    def _turn(self) -> tuple[bool, bool]:
        """Upload pending data, at most `AT_ONCE` segments per rank.

        Returns:
            Whether everything is done, and whether there was nothing to do.
        """
        # Before anything else: data that arrives after the end does not belong to the run.
        over = self._is_over()
        beats = self._heartbeats.read()
        manifests = self._segments.manifests()
        pending = self._segments.pending()
        if pending and not self._target.rank:
            # Rank 0 completes the run's record before it commits anything.
            self._files.bring_one(RunRecord.KEY)
        for rank, seqs in pending.items():
            self._segments.bring(rank, seqs)
        behind = [rank for rank, seqs in pending.items() if len(seqs) > AT_ONCE]
        for rank, key in manifests:
            if rank not in behind:
                self._segments.bring_manifest(key)
        self._bring_files(all_of_them=over and not behind)
        ended = self._heartbeats.bring(beats, behind)
        if not over or behind:
            return False, not pending
        if self._target.rank:
            return ended, True
        self._bring_exit()
        return True, True

    def _bring_files(self, *, all_of_them: bool) -> None:
        now = time.monotonic()
        if all_of_them or now >= self._files_at:
            self._files_at = now + _FILES
            self._files.bring(all_of_them=all_of_them)

    def _bring_exit(self) -> None:
        """Upload the exit record, unless the store already has one."""
        try:
            self._store.put(ExitRecord.KEY, [self._spool.get(ExitRecord.KEY)], exclusive=True)
        except KeyTaken:
            return

    def _is_over(self) -> bool:
        """Return whether the training has ended; settle the run if its processes are gone."""
        if self._over:
            return True
        if self._target.rank:
            owner = self._target.owner
            beats = self._heartbeats.read()
            gone = owner is not None and is_alive(ProcessIdentity(**owner)) is False
            self._over = gone or (bool(beats) and all(beat.closed for beat in beats))
        elif self._spool.exists(ExitRecord.KEY):
            self._over = True
        elif time.monotonic() >= self._life_at:
            self._life_at = time.monotonic() + _LIFE
            self._settle()
        return self._over

    def _settle(self) -> None:
        """Write the exit record of a run whose processes are gone."""
        try:
            settle(self._folder)
        except StillRunning:
            return
        self._over = True


class _Outage:
    """Tracks the outages of one store; each is reported when it begins and when it ends.

    Args:
        say: reports a sentence to the user.
        what: fate of the data captured meanwhile, worded to follow a semicolon.
    """

    def __init__(self, say: Callable[[str], object], what: str) -> None:
        self._say = say
        self._what = what
        self._since = 0.0
        self._pauses: Iterator[float] | None = None

    def failed(self, error: OSError) -> float:
        """Record a failure; return the seconds to wait before the next attempt.

        The pauses double up to 3 s. Each is drawn at random between half and all of that, so that
        the relays of many trainings do not return at the same moment.
        """
        if self._pauses is None:
            self._pauses = backoff(_FIRST, _LONGEST)
            self._since = time.monotonic()
            self._say(f"{error}; {self._what}")
        pause = _LONGEST if isinstance(error, StoreFull) else next(self._pauses)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 (nothing secret)

    def succeeded(self, where: str) -> None:
        """Record a success.

        Args:
            where: location of the store, for the message.
        """
        if self._pauses is not None:
            away = time.monotonic() - self._since
            self._say(f"{where}: takes uploads again, after {away:.0f} s; nothing was lost")
        self._pauses = None
