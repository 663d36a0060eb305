"""Start the supervisor of a run, and with it the training."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import CorruptData, LaunchError, NotARun
from vinedresser.foreign_signals import holding_foreign
from vinedresser.infra.catalog.tracking_uri import absolute_uri, mlflow_uri, sqlite_path
from vinedresser.infra.supervise.gpus import NO_GPUS, VISIBLE_GPUS, Lease, lease
from vinedresser.infra.supervise.launch_values import memory_file, take
from vinedresser.infra.supervise.launcher.command_check import check_command
from vinedresser.infra.supervise.launcher.passing_on import channel
from vinedresser.infra.supervise.launcher.supervisor_server import SupervisorServer
from vinedresser.masking import MASK
from vinedresser.objects import LocalStorage
from vinedresser.store.records import (
    MLFLOW_VARIABLE,
    ExitRecord,
    LaunchRecord,
    RunRecord,
    StopRecord,
    SupervisorRecord,
    TrackingRecord,
    environment_without_run,
    read_record,
    run_lock,
    write_first,
)

__all__ = ["script_tracking", "start", "supervise"]

_SERVER = SupervisorServer()
_URI = "MLFLOW_TRACKING_URI"
# Seconds that the script waits for the database, which several processes write.
_PATIENCE = 60


def start(directory: str | os.PathLike[str]) -> subprocess.Popen[bytes]:
    """Start the supervisor of a prepared run, and with it the training.

    A run that gets its own GPUs waits until they are free or it is asked to end. The supervisor
    survives the caller. `supervisor_alive` is true until it has ended.

    Returns:
        The supervisor's process, for the caller to reap; it exits with 0 once the exit record is
        written.

    Raises:
        NotARun: the directory is not a prepared run.
        LaunchError: the run was started before; or the command cannot be started, which the exit
            record then says, too.
        StoreError: the directory cannot be written.
    """
    with _ready(directory) as ready:
        return _spawn(ready)


def _spawn(ready: _Ready, channel: int | None = None) -> subprocess.Popen[bytes]:
    """Start a supervisor's process; see `start`.

    Args:
        channel: descriptor on which the supervisor gets signals, if any.
    """
    path, launch, lock, gpus, values = ready
    passed = (lock, values) if channel is None else (lock, values, channel)
    own = {VISIBLE_GPUS: ",".join(gpus.names)} if launch.own_gpus else {}
    with holding_foreign():
        return subprocess.Popen(
            # -P: a module beside the training script must not shadow the standard library's.
            [
                *(sys.executable, "-P", "-m", "vinedresser.infra.supervise.supervisor"),
                *(str(path), *map(str, passed)),
            ],
            env=environment_without_run() | own,
            stdin=_input() if launch.forward else subprocess.DEVNULL,
            stdout=None if launch.forward else subprocess.DEVNULL,
            pass_fds=(*passed, *gpus.descriptors),
            start_new_session=True,
        )


def supervise(directory: str | os.PathLike[str]) -> None:
    """Start the supervisor of a prepared run like `start`, and wait until the run is over.

    Supervisors share a process that forks them, which is faster than starting each of them. One
    that holds GPUs or forwards output is a process of its own. `pass_on` reaches it meanwhile.

    Raises:
        NotARun, LaunchError, StoreError: see `start`.
    """
    launch = read_record(LocalStorage(directory), LaunchRecord)
    supervisor: subprocess.Popen[bytes] | None = None
    with channel() as (own, other):
        with _ready(directory) as ready, other:
            if launch is not None and (launch.own_gpus or launch.forward):
                supervisor = _spawn(ready, other.fileno())
            else:
                _SERVER.fork(ready.path, ready.lock, ready.values, other.fileno())
        if supervisor is not None:
            supervisor.wait()
        # It is dead, or has written the exit record.
        own.recv(1)


class _Ready(NamedTuple):
    path: Path
    launch: LaunchRecord
    lock: int
    gpus: Lease
    values: int


@contextmanager
def _ready(directory: str | os.PathLike[str]) -> Iterator[_Ready]:
    """Check that a run can be started; provide its lock, GPUs and values to its supervisor.

    Raises:
        NotARun, LaunchError, StoreError: see `start`.
    """
    path = Path(directory).absolute()
    storage = LocalStorage(path)
    launch = read_record(storage, LaunchRecord)
    if launch is None or not storage.exists(RunRecord.KEY):
        raise NotARun(f"{directory}: not a prepared run; it has no {LaunchRecord.KEY}")
    try:
        lock = run_lock.acquire(path)
    except OSError as error:
        raise _not_started(storage, error) from error
    if lock is None:
        raise LaunchError(f"{directory}: already supervised")
    try:
        for trace in (ExitRecord.KEY, SupervisorRecord.KEY):
            if storage.exists(trace):
                raise LaunchError(f"{directory}: already started: it has a {trace}")
        launch, gpus = _make_ready(path, storage, launch)
        values = -1
        try:
            values = memory_file(launch)
            yield _Ready(path, launch, lock, gpus, values)
        except OSError as error:
            raise _not_started(storage, error) from error
        finally:
            gpus.close()
            if values >= 0:
                os.close(values)
    finally:
        os.close(lock)


def _not_started(storage: LocalStorage, error: OSError) -> LaunchError:
    """Record the end of a run without a supervisor; its followers would wait for one."""
    reason = f"its supervisor cannot be started: {error.strerror or error}"
    write_first(storage, ExitRecord("crashed", reason, time.time(), code=126))
    return LaunchError(f"{storage.location}: {reason}")


def _input() -> int | None:
    """Return the standard input of a training: that of this process, unless it is a terminal.

    A terminal belongs to its session, which a training is not part of.
    """
    try:
        os.fstat(0)
    except OSError:
        return subprocess.DEVNULL
    return subprocess.DEVNULL if os.isatty(0) else None


def _tracking(storage: LocalStorage, launch: LaunchRecord) -> dict[str, str]:
    """Return variables for MLflow in the script; the supervisor has no module that knows them."""
    try:
        record = read_record(storage, TrackingRecord)
    except CorruptData as error:
        raise LaunchError(str(error)) from error
    return script_tracking(record, environment_without_run() | launch.environment)


def _make_ready(
    path: Path, storage: LocalStorage, launch: LaunchRecord
) -> tuple[LaunchRecord, Lease]:
    """Return the launch with all values and the reserved GPUs; record the end if it fails."""
    try:
        launch = take(path, launch)
        if missing := [name for name in launch.environment_from if name not in os.environ]:
            raise LaunchError(
                f"environment variable {missing[0]} is not set where the training starts; "
                "run.environment_from names it"
            )
        check_command(launch.argv, launch.cwd, launch.environment)
        launch = replace(launch, environment=launch.environment | _tracking(storage, launch))
        if not launch.own_gpus:
            return launch, NO_GPUS
        return launch, lease(launch.own_gpus, lambda: storage.exists(StopRecord.KEY))
    except LaunchError as error:
        write_first(storage, ExitRecord("crashed", str(error), time.time(), code=127))
        raise


def script_tracking(record: TrackingRecord | None, given: Mapping[str, str]) -> dict[str, str]:
    """Return variables for MLflow in a script.

    There are none if the script's environment names another server or run, if the URI has a
    password, which its processes need not know, or if the database is on another machine.

    Args:
        record: the MLflow run; None if there is none.
        given: the environment of the script.
    """
    if record is None or not record.run_id or MASK in record.uri:
        return {}
    uri, path = absolute_uri(record.uri), sqlite_path(record.uri)
    if path is not None and not path.is_file():
        return {}
    own = {name for name in given if name.startswith("MLFLOW_")}
    if own & {"MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"}:
        return {}
    if _URI in own and given[_URI] not in (uri, mlflow_uri(uri)):
        return {}
    shown = mlflow_uri(uri)
    waits = path is not None and "?" not in shown
    return {
        _URI: f"{shown}?timeout={_PATIENCE}" if waits else shown,
        MLFLOW_VARIABLE: f"{_installed()}/{record.experiment_id}/{record.run_id}",
    }


def _installed() -> str:
    """Return the version of MLflow in this environment."""
    for name in ("mlflow", "mlflow-skinny"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""
