"""Start the supervisor of a run, and with it the training."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import LaunchError, NotARun
from vinedresser.infra.gpus import NO_GPUS, VISIBLE_GPUS, Lease, lease
from vinedresser.infra.launch_values import memory_file, take
from vinedresser.infra.launcher.command_check import check_command
from vinedresser.infra.launcher.supervisor_server import SupervisorServer
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    RunRecord,
    StopRecord,
    SupervisorRecord,
    environment_without_run,
    read_record,
    run_lock,
    write_first,
)
from vinedresser.store.storage import LocalStorage

__all__ = ["start", "supervise"]

_SERVER = SupervisorServer()


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
    with _ready(directory) as (path, launch, lock, gpus, values):
        own = {VISIBLE_GPUS: ",".join(gpus.names)} if launch.gpus else {}
        return subprocess.Popen(
            # -P: a module beside the training script must not shadow the standard library's.
            [
                *(sys.executable, "-P", "-m", "vinedresser.infra.supervisor"),
                *(str(path), str(lock), str(values)),
            ],
            env=environment_without_run() | own,
            stdin=_input() if launch.forward else subprocess.DEVNULL,
            stdout=None if launch.forward else subprocess.DEVNULL,
            pass_fds=(lock, values, *gpus.descriptors),
            start_new_session=True,
        )


def supervise(directory: str | os.PathLike[str]) -> None:
    """Start the supervisor of a prepared run like `start`, and wait until the run is over.

    Supervisors share a process that forks them, which is faster than starting each of them. One
    that holds GPUs or forwards output is a process of its own.

    Raises:
        NotARun, LaunchError, StoreError: see `start`.
    """
    launch = read_record(LocalStorage(directory), LaunchRecord)
    if launch is not None and (launch.gpus or launch.forward):
        start(directory).wait()
        return
    with _ready(directory) as (path, _, lock, _, values):
        end = _SERVER.fork(path, lock, values)
    try:
        os.read(end, 1)
    finally:
        os.close(end)


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
        if not launch.gpus:
            return launch, NO_GPUS
        return launch, lease(launch.gpus, lambda: storage.exists(StopRecord.KEY))
    except LaunchError as error:
        write_first(storage, ExitRecord("crashed", str(error), time.time(), code=127))
        raise
