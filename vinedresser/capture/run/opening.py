"""An open run: the launched one, or one that captures nothing."""

from __future__ import annotations

from dataclasses import dataclass

from vinedresser.capture.run.no_storage import NoStorage
from vinedresser.capture.run.uploading import Upload
from vinedresser.errors import NotARun, StoreError
from vinedresser.objects import LocalStorage, Storage, open_storage
from vinedresser.objects.retrying import retry
from vinedresser.plain_logs import plain_logger
from vinedresser.store.records import RunRecord, read_record, write_record

__all__ = ["RETRIES", "OpenedRun", "launched_run", "uncaptured_run"]

_LOG = plain_logger(__name__)

RETRIES = (0.05, 0.2)
"""Seconds before run.json is written or read again."""


@dataclass
class OpenedRun:
    """A run that is open for writing.

    Attributes:
        launched: a launcher created the run, and a supervisor writes its exit record.
        upload: upload to the object store; None for a run in a directory.
        failure: why nothing is captured; empty if the run could be opened.
        captures: whether models are watched; not where a script is checked, or a step replayed.
    """

    storage: Storage
    record: RunRecord
    launched: bool
    upload: Upload | None = None
    failure: str = ""
    captures: bool = True

    @property
    def location(self) -> str:
        """Location for readers."""
        return self.storage.location if self.upload is None else self.upload.url

    @property
    def directory(self) -> LocalStorage | None:
        """The run directory, which all ranks share.

        None if nothing is kept, or if each rank has its own spool, as hooks on an object store do
        that are not launched.
        """
        own_spool = self.upload is not None and not self.launched
        return self.storage if isinstance(self.storage, LocalStorage) and not own_spool else None

    def update(self, record: RunRecord) -> None:
        """Replace the run's record unless it is the same.

        Raises:
            StoreError: the storage failed.
        """
        if record != self.record:
            self.record = record
            write_record(self.storage, record)


def launched_run(location: str) -> OpenedRun:
    """Open the run for which this process was launched.

    Raises:
        NotARun: run.json is missing.
        CorruptData: run.json is invalid.
        StoreError: the storage failed.
    """
    upload = Upload.of(location)
    storage = open_storage(location, anchor=RunRecord.KEY) if upload is None else upload.storage
    record = retry(lambda: read_record(storage, RunRecord), StoreError, RETRIES)
    if record is None:
        raise NotARun(f"{location}: this process was launched for it, but it has no run.json")
    return OpenedRun(storage, record, launched=True, upload=upload)


def uncaptured_run(
    location: str, record: RunRecord, error: Exception, *, launched: bool = False
) -> OpenedRun:
    """Return a run that keeps nothing, for a training whose run could not be opened."""
    failure = f"nothing is captured: {error}; training continues"
    return OpenedRun(NoStorage(location), record, launched, failure=failure)
