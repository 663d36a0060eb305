"""Opening the launched run, or creating a new one."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.run.environment import Environment, versions
from vinedresser.capture.run.no_storage import NoStorage
from vinedresser.capture.run.uploading import Upload
from vinedresser.errors import AlreadyARun, ConfigError, KeyTaken, NotARun, StoreError
from vinedresser.masking import masked_names
from vinedresser.retrying import retry
from vinedresser.store.records import RUN_VARIABLE, RunRecord, new_run, read_record, write_record
from vinedresser.store.storage import Storage, open_storage
from vinedresser.store.storage.location import is_remote

__all__ = ["OpenedRun", "create_run", "launched_run", "uncaptured_run"]

_LOG = logging.getLogger(__name__)

# Seconds that other ranks wait for rank 0 to create the run.
_PATIENCE = 60.0
# Seconds before run.json is written or read again.
_RETRIES = (0.05, 0.2)


@dataclass
class OpenedRun:
    """A run that is open for writing.

    Attributes:
        storage: storage of the run.
        record: record of the run.
        launched: a launcher created the run, and a supervisor writes its exit record.
        upload: upload to the object store; None for a run in a directory.
        failure: why nothing is captured; empty if the run could be opened.
    """

    storage: Storage
    record: RunRecord
    launched: bool
    upload: Upload | None = None
    failure: str = ""

    @property
    def location(self) -> str:
        """Location for readers."""
        return self.storage.location if self.upload is None else self.upload.url

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
    record = retry(lambda: read_record(storage, RunRecord), StoreError, _RETRIES)
    if record is None:
        raise NotARun(f"{location}: this process was launched for it, but it has no run.json")
    return OpenedRun(storage, record, launched=True, upload=upload)


def create_run(
    path: str | os.PathLike[str] | None,
    environment: Environment,
    config: CaptureConfig,
    *,
    name: str | None,
    parameters: Mapping[str, Any] | None,
    total_steps: int | None,
) -> OpenedRun:
    """Create a run; ranks other than 0 wait until rank 0 has created it.

    If the disk fails, the returned run keeps nothing and says so: it is no reason to end a
    training.

    Args:
        path: location of the run.
        environment: environment of this process.
        config: collections to capture.
        name: name of the run; None: the last part of the path.
        parameters: hyperparameters; values that are not JSON types are stored as strings.
        total_steps: expected number of steps.

    Raises:
        ConfigError: the path is None, or parameters is not a mapping.
        AlreadyARun: the path already holds a run.
        NotARun: rank 0 did not create the run in time.
        StoreError: the object store failed, or a rank's own disk.
    """
    if path is None:
        raise ConfigError(
            "the run has no path: pass one, as in Hook('runs/name'), or start the program with "
            f"`vinedresser run`, which sets {RUN_VARIABLE}"
        )
    upload = Upload.create(os.fspath(path), environment.rank) if is_remote(path) else None
    storage = open_storage(path, anchor=RunRecord.KEY) if upload is None else upload.storage
    if environment.rank:
        if upload is not None:
            upload.claim()
        return OpenedRun(storage, _await_record(storage), launched=False, upload=upload)
    record = replace(
        new_run(name or PurePath(path).name, parameters, as_text=True),
        command=list(sys.argv),
        total_steps=total_steps,
        versions=versions(),
        world_size=environment.world_size,
        capture=config.to_json(),
        capture_digest=config.digest(),
    )
    if masked := masked_names(record.parameters):
        _LOG.warning(
            "parameters.%s looks like a secret; the run shows *** instead; pass secrets as "
            "environment variables",
            ", ".join(masked),
        )
    try:
        _write_new(storage, record)
    except StoreError as error:
        if upload is not None:
            raise
        return uncaptured_run(storage.location, record, error)
    if upload is not None:
        upload.claim()
    return OpenedRun(storage, record, launched=False, upload=upload)


def uncaptured_run(
    location: str, record: RunRecord, error: StoreError, *, launched: bool = False
) -> OpenedRun:
    """Return a run that keeps nothing, for a training whose disk failed at the start."""
    failure = f"nothing is captured: {error}; training continues"
    return OpenedRun(NoStorage(location), record, launched, failure=failure)


def _write_new(storage: Storage, record: RunRecord) -> None:
    """Write the record of a new run; a failure of the disk may pass."""
    try:
        retry(
            lambda: write_record(storage, record, exclusive=True),
            StoreError,
            _RETRIES,
            when=lambda error: not isinstance(error, KeyTaken),
        )
    except KeyTaken as error:
        raise AlreadyARun(
            f"{storage.location}: already holds a run; choose another location"
        ) from error


def _await_record(storage: Storage) -> RunRecord:
    """Return the record written by rank 0."""
    deadline = time.monotonic() + _PATIENCE
    while (record := read_record(storage, RunRecord)) is None:
        if time.monotonic() > deadline:
            raise NotARun(f"{storage.location}: rank 0 did not create the run in {_PATIENCE:.0f} s")
        time.sleep(0.05)
    return record
