"""The place of a run on an object store: made in a local spool and uploaded while it is made."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from vinedresser.capture.run.claims import additional_location
from vinedresser.errors import AlreadyARun, KeyTaken, VinedresserError
from vinedresser.objects import StoreUrl, open_storage
from vinedresser.store.records import RunRecord
from vinedresser.store.relay_process import RelayProcess
from vinedresser.store.spool import adopt_spool, make_spool
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["RemotePlace", "free_url", "reserve_url"]

# Seconds to wait for the upload of a run that is over, and after which to report the wait.
_PATIENCE, _QUIET = 60.0, 3.0
# Marks a name in a store as taken before its run has begun.
_RESERVED = "reserved.json"


def free_url(store: StoreUrl, stem: str) -> StoreUrl:
    """Return the first of STORE/STEM-1, STORE/STEM-2, … without a run.

    Args:
        store: ``s3://bucket/prefix``.
        stem: first part of the name.

    Raises:
        StoreError: the store refused a request.
    """
    storage = open_storage(store)
    number = 1
    while any(storage.exists(f"{stem}-{number}/{key}") for key in (RunRecord.KEY, _RESERVED)):
        number += 1
    return store / f"{stem}-{number}"


def reserve_url(store: StoreUrl, name: str) -> StoreUrl:
    """Reserve a name in a store for a run that begins later, and return its URL.

    Args:
        store: ``s3://bucket/prefix``.

    Raises:
        AlreadyARun: the name is taken.
        StoreError: the store refused a request.
    """
    storage = open_storage(store)
    url = store / name
    taken = AlreadyARun(f"{url}: already holds a run; choose another location")
    if storage.exists(f"{name}/{RunRecord.KEY}"):
        raise taken
    try:
        storage.put(f"{name}/{_RESERVED}", [b"{}\n"], exclusive=True)
    except KeyTaken as error:
        raise taken from error
    return url


class RemotePlace(RunPlace):
    """A spool on this machine, until the whole run is in its store.

    Args:
        lock: file descriptor of the spool's lock.
        say: reports a sentence to the user.
    """

    def __init__(
        self, url: StoreUrl, directory: Path, lock: int, say: Callable[[str], object]
    ) -> None:
        super().__init__(directory)
        self.url = url
        self._uploaded = False
        self._lock: int | None = lock
        self._say = say
        self._relay: RelayProcess | None = None

    @classmethod
    def make(cls, url: StoreUrl, say: Callable[[str], object]) -> RemotePlace:
        """Return a place with an empty spool.

        Args:
            say: reports a sentence to the user.

        Raises:
            OSError: the spool cannot be written.
        """
        return cls(url, *make_spool(url, uuid.uuid4().hex[:12]), say)

    @property
    def location(self) -> StoreUrl:
        """Location at which readers find the run."""
        return self.url

    @property
    def removed(self) -> bool:
        """Whether the spool was removed by somebody else, before the upload was complete."""
        return not self._uploaded and super().removed

    def begin(self) -> None:
        """Claim the URL and begin the upload.

        Raises:
            AlreadyARun: the store already holds a run there.
            StoreError: the store refused a request.
        """
        assert self._lock is not None, "it begins once"
        lock, self._lock = self._lock, None
        self._relay = RelayProcess(self.directory, lock, keep=True)
        self._relay.listen(self._say)

    def discard(self) -> None:
        """Remove the spool of a run that does not begin."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def complete(self) -> None:
        """Wait up to a minute for the uploads, which otherwise continue by themselves."""
        deadline = time.monotonic() + _PATIENCE
        places = [place for place in (self, *self.additional) if isinstance(place, RemotePlace)]
        self.arrived = [place for place in places if place._arrive(deadline)]

    def _arrive(self, deadline: float) -> bool:
        """Wait for the upload and remove the spool; return whether the upload is complete."""
        if self._relay is None:
            return False
        if not self._relay.wait(_QUIET) and self._relay.alive:
            self._say(f"waiting up to {_PATIENCE:.0f} s for the upload to {self.url}")
        if not self._relay.wait(max(deadline - time.monotonic(), 0.0)):
            self._relay.leave()
            self._say(
                f"the upload to {self.url} is incomplete; the rest waits in {self.directory}, and "
                "`vinedresser reconcile` uploads it"
            )
            return False
        self._uploaded = True
        shutil.rmtree(self.directory, ignore_errors=True)
        return True

    def _beside(self, directory: Path) -> RunPlace | None:
        """Return the place of an additional run and begin its upload."""
        url = StoreUrl(additional_location(self.url, int(directory.name.rpartition(".")[2])))
        try:
            place = RemotePlace(url, directory, adopt_spool(directory, url), self._say)
            place.begin()
        except (VinedresserError, OSError) as error:
            self._say(f"{url}: not uploaded: {error}; the captured data stays in {directory}")
            return None
        return place
