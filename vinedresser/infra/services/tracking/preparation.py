"""Creates the database and the experiment before any child process starts.

When six processes opened a fresh SQLite database at the same time, five of them died in MLflow's
migrations. So one process creates it, under a file lock, and under a temporary name until it is
complete, so that a kill leaves no partial database. It is a copy of a template, which the first
database of a version of MLflow becomes.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from vinedresser.errors import TrackingError, VinedresserError
from vinedresser.infra.catalog.tracking_uri import absolute_uri, sqlite_path
from vinedresser.infra.services.database_template import database_template, try_lock
from vinedresser.infra.services.tracking.client import connected, mlflow_version
from vinedresser.infra.services.tracking.patience import persist
from vinedresser.objects.files import folder_below, make_folders, open_file

__all__ = ["prepare_tracking", "start_preparing"]

_POLL_SECONDS = 0.05
# Held while this process prepares a database: a thread of `start_preparing` may need minutes on a
# busy machine, and whoever needs the database waits for it without limit.
_preparing = threading.Lock()


def prepare_tracking(
    uri: str,
    experiment: str,
    *,
    timeout: float = 60.0,
    say: Callable[[str], object] = lambda _: None,
) -> str:
    """Create the database, its directory and the experiment if they are missing.

    Several processes and threads may call it at once. The artifacts of a SQLite store lie beside
    it, in ``mlartifacts``, independent of the working directory.

    Args:
        timeout: seconds to retry while the database is locked or the server unavailable. Creating
            the database is not limited.
        say: is called with a sentence before a wait that may be long.

    Returns:
        The experiment's id.

    Raises:
        ConfigError: not a tracking URI that MLflow supports.
        MissingDependency: mlflow is not installed.
        StoreError: the template of the database, in the user's state folder, cannot be written.
        TrackingError: the server or its database refused or stayed unavailable.
    """
    uri = absolute_uri(uri)
    path = sqlite_path(uri)
    if path is None:
        return persist(lambda: _experiment_id(uri, experiment, None), timeout)
    location = (path.parent / "mlartifacts").as_uri()

    def alone() -> str:
        with _locked(path, timeout):
            if template is not None and not path.exists():
                _copy(template, path)
            found = _experiment_id(uri, experiment, location)
            # MLflow writes into it without a look.
            folder_below(path.parent, f"mlartifacts/{found}")
            return found

    with _preparing:
        try:
            make_folders(path.parent)
        except OSError as error:
            raise TrackingError(f"{uri}: cannot create its directory: {error}") from error
        # Importing MLflow and making the template take a minute on a busy machine: no other process
        # waits for that.
        template = None if path.exists() else _template(say)
        return persist(alone, timeout)


def start_preparing(uri: str, experiment: str, say: Callable[[str], object]) -> None:
    """Start `prepare_tracking` on a thread, while the caller waits for something else.

    The caller calls `prepare_tracking` later, which waits for the thread and raises any error
    again.

    Args:
        say: see `prepare_tracking`.
    """

    def prepare() -> None:
        with suppress(VinedresserError):
            prepare_tracking(uri, experiment, say=say)

    threading.Thread(target=prepare, name="prepare-tracking", daemon=True).start()


def _template(say: Callable[[str], object]) -> Path:
    """Return an empty database of the installed version of MLflow."""
    return database_template("mlflow", mlflow_version(), _made_database, say)


@contextmanager
def _made_database() -> Iterator[Path]:
    """Provide an empty database of MLflow."""
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as folder:
        path = Path(folder, "mlflow.db")
        path.touch()
        with (
            connected(f"sqlite:///{quote(str(path))}"),
            closing(sqlite3.connect(path, isolation_level=None)) as connection,
        ):
            # The default experiment depends on the working directory; MLflow creates it when it
            # opens a database without it.
            connection.execute("DELETE FROM experiments")
            yield path


def _copy(template: Path, path: Path) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    try:
        unfinished.unlink(missing_ok=True)
        descriptor = open_file(path.parent, unfinished.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with template.open("rb") as source, open(descriptor, "wb") as target:
            shutil.copyfileobj(source, target)
        os.replace(unfinished, path)
    except OSError as error:
        raise TrackingError(f"{path}: cannot be created: {error.strerror}") from error


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
        descriptor = open_file(lock.parent, lock.name, os.O_WRONLY | os.O_CREAT)
    except OSError as error:
        raise TrackingError(f"{lock}: cannot be created: {error}") from error
    try:
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TrackingError(f"{lock}: held by another process for more than {timeout:g} s")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
