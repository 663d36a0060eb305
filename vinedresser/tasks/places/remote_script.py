"""Run one script under supervision, its run on an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vinedresser.errors import VinedresserError
from vinedresser.store.records import ExitRecord
from vinedresser.store.storage import Location, StoreUrl
from vinedresser.tasks.lifecycle.run_script import run_to_end, training_seen
from vinedresser.tasks.lifecycle.settle import settle_run
from vinedresser.tasks.places.remote_place import RemotePlace

__all__ = ["RemoteScript"]


class RemoteScript:
    """A script whose run directory is a spool, as long as not all of it is in its store.

    Args:
        url: of the run.
        say: says a sentence to a person.

    Attributes:
        directory: the spool.
        seen: whether a training was seen; known when it has run.
        uploaded: the URLs of the runs that are in the store to their end; known when it has run.

    Raises:
        OSError: the spool cannot be written.
    """

    def __init__(self, url: StoreUrl, say: Callable[[str], object]) -> None:
        self.seen = False
        self.uploaded: list[Location] = []
        self._place = RemotePlace.make(url, say)
        self.directory = self._place.directory

    def prepare(self, make: Callable[[Path], object]) -> None:
        """Make the spool a run that can be started.

        Args:
            make: does that to a directory.

        Raises:
            VinedresserError: as it does.
        """
        try:
            make(self.directory)
        except VinedresserError:
            self._place.discard()
            raise

    def run(self) -> ExitRecord:
        """Start the prepared script and the upload of its run, and return how it ended.

        Raises:
            AlreadyARun: the store has a run there; nothing was started.
            StoreError: the store refused; nothing was started.
            LaunchError: it could not be started.
            VinedresserError: a judge failed; the script had run to its end all the same.
        """
        try:
            self._place.begin()
        except VinedresserError:
            self._place.discard()
            raise
        end, failures = run_to_end(self._place)
        self.seen = training_seen(self.directory)
        for place in self._place.complete():
            settle_run(place.location)
            self.uploaded.append(place.location)
        if failures:
            raise failures[0]
        return end
