"""The run that a hook writes to: the one it was launched for, or one of its own."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.run.environment import Environment, versions
from vinedresser.capture.run.uploading import Upload
from vinedresser.errors import AlreadyARun, ConfigError, KeyTaken, NotARun
from vinedresser.store.records import RUN_VARIABLE, RunRecord, read_record, write_record
from vinedresser.store.storage import Storage, open_storage
from vinedresser.store.storage.location import is_remote

__all__ = ["OpenedRun", "create_run", "launched_run"]

# How long another rank of the same job waits for rank 0 to make the run.
_PATIENCE = 60.0


@dataclass
class OpenedRun:
    """A run that is ready to be written to.

    Attributes:
        storage: where it lies.
        record: what it is.
        launched: a launcher made it, and a supervisor will say how it ended.
        upload: how it gets to the object store where it belongs; None for a run in a directory.
    """

    storage: Storage
    record: RunRecord
    launched: bool
    upload: Upload | None = None

    @property
    def location(self) -> str:
        """Where readers find it."""
        return self.storage.location if self.upload is None else self.upload.url

    def describe(
        self,
        framework: str,
        found: Mapping[str, str],
        config: CaptureConfig,
        world_size: int,
        modules: Mapping[str, list[str]],
        *,
        features: Iterable[str] = (),
        classes: Iterable[str] = (),
        setup: TrainingSetup | None = None,
    ) -> None:
        """Complete the run's record with what is known once a model has been seen.

        Args:
            framework: the model's.
            found: versions of the framework and what it runs on.
            config: what is captured.
            world_size: how many ranks there are.
            modules: type and activation of each module of the watched models, by path.
            features: names of the input's features.
            classes: names of the classes.
            setup: how the training is set up.

        Raises:
            StoreError: the storage refused.
        """
        setup = setup or TrainingSetup()
        record = replace(
            self.record,
            framework=framework,
            versions=versions(**found),
            world_size=world_size,
            capture=config.to_json(),
            capture_digest=config.digest(),
            modules=dict(modules),
            features=list(features),
            classes=list(classes),
            losses=setup.losses,
            optimizers=list(setup.optimizers.values()),
            frozen=setup.frozen,
            unoptimized=setup.unoptimized,
            dropout=setup.dropout,
        )
        if record != self.record:
            self.record = record
            write_record(self.storage, record)


def launched_run(location: str) -> OpenedRun:
    """Open the run for which this process was launched.

    Raises:
        NotARun: there is no run.json.
        CorruptData: it cannot be read.
        StoreError: the storage refused.
    """
    upload = Upload.of(location)
    storage = open_storage(location) if upload is None else upload.storage
    record = read_record(storage, RunRecord)
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
    """Make a run; the ranks beyond 0 wait for rank 0 to make it.

    Args:
        path: where; None: nobody said.
        environment: which rank this is.
        config: what will be captured.
        name: what people call it; None: the last part of the path.
        parameters: hyperparameters; anything that JSON does not know is kept as text.
        total_steps: steps it is expected to take.

    Raises:
        ConfigError: there is no path.
        AlreadyARun: there is one.
        NotARun: rank 0 did not make it in time.
        StoreError: the storage refused.
    """
    if path is None:
        raise ConfigError(
            f"no path for the run: give one, Hook('runs/name'), or start the program with "
            f"`vinedresser run`, which sets {RUN_VARIABLE}"
        )
    upload = Upload.create(os.fspath(path), environment.rank) if is_remote(path) else None
    storage = open_storage(path) if upload is None else upload.storage
    if environment.rank:
        if upload is not None:
            upload.claim()
        return OpenedRun(storage, _await_record(storage), launched=False, upload=upload)
    record = RunRecord(
        id=uuid.uuid4().hex,
        name=name or PurePath(path).name,
        created=time.time(),
        command=list(sys.argv),
        parameters=_plain(parameters),
        total_steps=total_steps,
        versions=versions(),
        world_size=environment.world_size,
        capture=config.to_json(),
        capture_digest=config.digest(),
    )
    try:
        write_record(storage, record, exclusive=True)
    except KeyTaken as error:
        raise AlreadyARun(
            f"{storage.location}: holds a run already; give the new one a directory of its own"
        ) from error
    if upload is not None:
        upload.claim()
    return OpenedRun(storage, record, launched=False, upload=upload)


def _await_record(storage: Storage) -> RunRecord:
    """Return the record that rank 0 writes."""
    deadline = time.monotonic() + _PATIENCE
    while (record := read_record(storage, RunRecord)) is None:
        if time.monotonic() > deadline:
            raise NotARun(f"{storage.location}: rank 0 did not make the run within {_PATIENCE} s")
        time.sleep(0.05)
    return record


def _plain(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return parameters as JSON types."""
    if parameters is not None and not isinstance(parameters, Mapping):
        raise ConfigError(f"parameters: a {type(parameters).__name__} is no mapping of names")
    plain: dict[str, Any] = json.loads(json.dumps(dict(parameters or {}), default=str))
    return plain
