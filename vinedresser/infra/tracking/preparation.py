"""Creates the database and the experiment before any child process starts.

When six processes opened a fresh SQLite database at the same time, five of them died in MLflow's
migrations. So one process creates it, under a file lock, and under a temporary name until it is
complete, so that a kill leaves no partial database.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from vinedresser.errors import TrackingError, VinedresserError
from vinedresser.infra.tracking.client import connected
from vinedresser.infra.tracking.location import absolute_uri, sqlite_path
from vinedresser.infra.tracking.patience import persist
from vinedresser.store.storage.files import make_folders

__all__ = ["prepare_tracking", "start_preparing"]

_POLL_SECONDS = 0.05


def prepare_tracking(uri: str, experiment: str, *, timeout: float = 60.0) -> str:
    """Create the database, its directory and the experiment if they are missing.

    Several processes may call it at once. The artifacts of a SQLite store lie beside it, in
    ``mlartifacts``, independent of the working directory.

    Args:
        uri: tracking URI.
        experiment: the experiment's name.
        timeout: seconds to retry while the database is locked or the server unavailable.

    Returns:
        The experiment's id.

    Raises:
        ConfigError: not a tracking URI that MLflow supports.
        MissingDependency: mlflow is not installed.
        TrackingError: the server or its database refused or stayed unavailable.
    """
    uri = absolute_uri(uri)
    path = sqlite_path(uri)
    if path is None:
        return persist(lambda: _experiment_id(uri, experiment, None), timeout)
    location = (path.parent / "mlartifacts").as_uri()

    def alone() -> str:
        with _locked(path, timeout):
            if not path.exists():
                _make_database(path)
            return _experiment_id(uri, experiment, location)

    try:
        make_folders(path.parent)
    except OSError as error:
        raise TrackingError(f"{uri}: cannot create its directory: {error}") from error
    return persist(alone, timeout)


def start_preparing(uri: str, experiment: str) -> None:
    """Start `prepare_tracking` on a thread, while the caller waits for something else.

    The caller calls `prepare_tracking` later, which waits for the thread's lock and raises any
    error again.

    Args:
        uri: tracking URI.
        experiment: the experiment's name.
    """

    def prepare() -> None:
        with suppress(VinedresserError):
            prepare_tracking(uri, experiment)

    threading.Thread(target=prepare, name="prepare-tracking", daemon=True).start()


def _make_database(path: Path) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    unfinished.touch()
    with connected(f"sqlite:///{quote(str(unfinished))}"):
        os.replace(unfinished, path)


def _experiment_id(uri: str, name: str, location: str | None) -> str:
    with connected(uri) as client:
        found = client.get_experiment_by_name(name)
        # If another process creates it in between, the call fails and is retried.
        if found is None:
            return str(client.create_experiment(name, artifact_location=location))
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"{uri}: experiment {name!r} was deleted; restore it (mlflow experiments restore "
                f"--experiment-id {found.experiment_id}) or choose another name"
            )
        return str(found.experiment_id)


@contextmanager
def _locked(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock file beside the database; the kernel releases it when the holder dies."""
    lock = path.with_name(f"{path.name}.lock")
    deadline = time.monotonic() + timeout
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise TrackingError(f"{lock}: cannot be created: {error}") from error
    try:
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TrackingError(f"{lock}: held by another process for more than {timeout:g} s")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
