"""Make a directory a run that can be started."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vinedresser.errors import AlreadyARun, ConfigError, KeyTaken, StoreError
from vinedresser.infra.launcher.code_version import code_version
from vinedresser.processes import ProcessIdentity
from vinedresser.store.records import LaunchRecord, RemedyRecord, RunRecord, write_record
from vinedresser.store.storage import LocalStorage

__all__ = ["prepare_run"]


def prepare_run(
    directory: str | os.PathLike[str],
    *,
    name: str,
    argv: Sequence[str],
    cwd: str | os.PathLike[str] = ".",
    parameters: Mapping[str, Any] | None = None,
    total_steps: int | None = None,
    capture: Mapping[str, Any] | None = None,
    needs: Mapping[str, Any] | None = None,
    digest: str = "",
    environment: Mapping[str, str] | None = None,
    owner: ProcessIdentity | None = None,
    grace: float = 10.0,
    forward: bool = False,
    flow: str = "",
    remedy: RemedyRecord | None = None,
    patience: float = 0.0,
    gpus: int = 0,
) -> RunRecord:
    """Make a directory a run that can be started.

    Args:
        directory: where; made when it is not there, and what else is in it stays.
        name: what people call the run.
        argv: the program and its arguments.
        cwd: the directory to start it in.
        parameters: hyperparameters, JSON types.
        total_steps: steps it is expected to take.
        capture: the capture configuration as JSON.
        needs: what of it the rules ask for.
        digest: SHA-256 of the capture configuration.
        environment: variables added to the inherited ones.
        owner: the process for which it runs: when that is gone, the training is asked to end.
        grace: seconds between asking the training to end and killing it.
        forward: pass its output through to the caller's own, beside the log.
        flow: id of the flow run that launches it, "" when there is none.
        remedy: of which stopped run it takes the place, if of any.
        patience: seconds for which the training goes on when its owner is gone, for another process
            to adopt it.
        gpus: how many GPUs of its machine it gets for itself; 0: it sees all.

    Returns:
        What was written to run.json.

    Raises:
        AlreadyARun: the directory holds a run.
        ConfigError: a parameter is not of a JSON type.
        StoreError: the directory cannot be written.
    """
    storage = LocalStorage(directory)
    run = RunRecord(
        id=uuid.uuid4().hex,
        name=name,
        created=time.time(),
        command=list(argv),
        parameters=_jsonable(parameters or {}),
        total_steps=total_steps,
        capture=dict(capture or {}),
        capture_digest=digest,
        needs=dict(needs or {}),
        code=code_version(cwd),
        flow=flow,
        remedy=remedy.to_json() if remedy else {},
    )
    launch = LaunchRecord(
        argv=list(argv),
        cwd=str(Path(cwd).absolute()),
        environment=dict(environment or {}),
        owner=asdict(owner) if owner else None,
        grace=grace,
        forward=forward,
        patience=patience,
        gpus=gpus,
    )
    try:
        write_record(storage, run, exclusive=True)
    except KeyTaken as error:
        raise AlreadyARun(
            f"{storage.location}: already holds a run, and runs are never overwritten; "
            "give another directory"
        ) from error
    try:
        write_record(storage, launch)
    except StoreError:
        storage.delete(RunRecord.KEY)
        raise
    return run


def _jsonable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in parameters.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"parameters.{key}: {value!r} has no place in JSON; give numbers, strings, "
                "booleans, or lists and tables of them"
            ) from error
    return dict(parameters)
