"""Creating the run of a training that nobody launched."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, TypeVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.run.claims import yield_run
from vinedresser.capture.run.environment import Environment, versions
from vinedresser.capture.run.no_storage import NoStorage
from vinedresser.capture.run.opening import RETRIES, OpenedRun, uncaptured_run
from vinedresser.capture.run.uploading import Upload
from vinedresser.errors import AlreadyARun, ConfigError, KeyTaken, NotARun, RunError, StoreError
from vinedresser.masking import masked_names
from vinedresser.objects import Storage, open_storage
from vinedresser.objects.location import is_remote
from vinedresser.objects.retrying import retry
from vinedresser.plain_logs import plain_logger
from vinedresser.store.records import (
    PREFLIGHT_VARIABLE,
    REPLAY_KERAS_VARIABLE,
    REPLAY_VARIABLE,
    RUN_VARIABLE,
    ExitRecord,
    RunRecord,
    heartbeat_key,
    new_run,
    read_record,
    write_record,
)

_LOG = plain_logger(__name__)

T = TypeVar("T")

# Seconds that other ranks wait for rank 0 to create the run.
_PATIENCE = 60.0
# Seconds before this process started in which rank 0 may have created the run.
_RECENT = 600.0


def open_for(
    path: str | os.PathLike[str] | None,
    environment: Environment,
    config: CaptureConfig,
    *,
    name: str | None,
    parameters: Mapping[str, Any] | None,
    total_steps: int | None,
    strict: bool,
) -> OpenedRun:
    """Open the run for a hook that a script creates: the launched one, or a new one.

    If the path holds a run, the new one is at ``<path>-2``, ``<path>-3`` and so on.

    Args:
        path: location of a new run.
        environment: environment of this process.
        config: collections to capture.
        name: name of a new run; None: the last part of its location.
        parameters: hyperparameters; values that are not JSON types are stored as strings.
        total_steps: expected number of steps.
        strict: raise errors, and create the run at the path or not at all. Otherwise, the returned
            run keeps nothing and says why: it is no reason to end a training.

    Raises:
        ConfigError: the path is None, or parameters is not a mapping.
        RunError: ``strict``, and there is a run at the path, or none where it should be.
        StoreError: ``strict``, and the object store failed, or the disk.
    """
    launched = environment.run
    others = (PREFLIGHT_VARIABLE, REPLAY_VARIABLE, REPLAY_KERAS_VARIABLE)
    tried = any(map(os.environ.get, others))
    if launched and path is not None and not tried:
        _LOG.info("capturing into the launched run %s, not %s", launched, path)
    elif not launched and path is None and not tried:
        raise ConfigError(
            "the run has no path: pass one, as in Hook('runs/name'), or start the program with "
            f"`vinedresser run`, which sets {RUN_VARIABLE}"
        )
    record = replace(
        new_run(name or "", parameters, as_text=True),
        command=list(sys.argv),
        total_steps=total_steps,
        versions=versions(),
        world_size=environment.world_size,
        capture=config.to_json(),
        capture_digest=config.digest(),
    )
    location = launched or os.fspath(path or "")
    if tried:
        # A check, or a replay of a step of an earlier run: there is nothing to capture.
        return OpenedRun(NoStorage(location), record, launched=False, captures=False)
    try:
        if launched:
            return yield_run(environment)
        return _create_run(location, environment, record, strict=strict)
    except (RunError, StoreError) as error:
        if strict:
            raise
        return uncaptured_run(location, record, error, launched=bool(launched))


def _create_run(
    path: str, environment: Environment, record: RunRecord, *, strict: bool
) -> OpenedRun:
    """Create a run; ranks other than 0 wait until rank 0 has created it.

    Args:
        path: see `open_for`.
        environment: see `open_for`.
        record: record of the run; without a name, it gets the last part of its location.
        strict: see `open_for`.

    Raises:
        AlreadyARun: the path already holds a run, and ``strict`` is set or several processes write
            to an object store.
        NotARun: rank 0 did not create the run in time.
        StoreError: the object store failed, or the disk.
    """
    numbered = not strict and not (is_remote(path) and environment.world_size > 1)
    if environment.rank:
        return _join(path, environment, numbered=numbered)
    if masked := masked_names(record.parameters):
        _LOG.warning(
            "parameters.%s looks like a secret; the run shows *** instead; pass secrets as "
            "environment variables",
            ", ".join(masked),
        )
    for number in itertools.count(1):
        location = _numbered(path, number)
        try:
            named = replace(record, name=record.name or PurePath(location).name)
            opened = _create(location, named, environment)
        except AlreadyARun:
            if not numbered:
                raise
            continue
        if number > 1:
            _LOG.warning("%s already holds a run; this one is in %s", path, location)
        return opened
    raise AssertionError("numbers do not end")


def _numbered(path: str, number: int) -> str:
    return path if number == 1 else f"{path.rstrip('/')}-{number}"


def _create(location: str, record: RunRecord, environment: Environment) -> OpenedRun:
    """Create a run.

    Raises:
        StoreError: the object store failed, or the disk.
    """
    upload = Upload.create(location, environment.rank) if is_remote(location) else None
    storage = open_storage(location, anchor=RunRecord.KEY) if upload is None else upload.storage
    try:
        retry(
            lambda: write_record(storage, record, exclusive=True),
            StoreError,
            RETRIES,
            when=lambda error: not isinstance(error, KeyTaken),
        )
    except KeyTaken as error:
        raise AlreadyARun(
            f"{storage.location}: already holds a run; choose another location"
        ) from error
    if upload is not None:
        upload.claim()
    return OpenedRun(storage, record, launched=False, upload=upload)


def _join(path: str, environment: Environment, *, numbered: bool) -> OpenedRun:
    """Open the run that rank 0 creates.

    Raises:
        NotARun: rank 0 did not create the run in time.
        StoreError: the storage failed.
    """
    if is_remote(path):
        upload = Upload.create(path, environment.rank)
        upload.claim()
        record = _awaited(path, lambda: read_record(upload.storage, RunRecord))
        return OpenedRun(upload.storage, record, launched=False, upload=upload)

    # The directory of a process in /proc is as old as the process.
    started = Path("/proc/self").stat().st_ctime

    def latest(*, exact: bool) -> tuple[Storage, RunRecord] | None:
        """Return the last of the runs that this rank has not written to.

        Args:
            exact: leave out runs that ended before this process began, or are too old.
        """
        found = None
        for number in itertools.count(1):
            storage = open_storage(_numbered(path, number), anchor=RunRecord.KEY)
            record = read_record(storage, RunRecord)
            if record is None:
                return found
            if not numbered:
                return storage, record
            if storage.exists(heartbeat_key(environment.rank)):
                continue
            # Another rank of this program may have ended before this one is here.
            end = read_record(storage, ExitRecord)
            over = end is not None and end.ended < started
            if not exact or not (over or record.created < started - _RECENT):
                found = storage, record
        return found

    try:
        storage, record = _awaited(path, lambda: latest(exact=True))
    except NotARun:
        # The clocks of two machines may differ.
        late = latest(exact=False)
        if late is None:
            raise
        storage, record = late
    return OpenedRun(storage, record, launched=False)


def _awaited(path: str, read: Callable[[], T | None]) -> T:
    """Return what rank 0 writes."""
    deadline = time.monotonic() + _PATIENCE
    while (found := read()) is None:
        if time.monotonic() > deadline:
            raise NotARun(f"{path}: rank 0 did not create the run in {_PATIENCE:.0f} s")
        time.sleep(0.05)
    return found
