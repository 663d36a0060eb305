"""Templates: empty databases of MLflow and Prefect, of which stores and servers get copies.

Creating the tables takes seconds of a core, and minutes on a busy machine. So the first process
that needs them leaves an empty database in the user's state folder, one for each version.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from vinedresser.errors import StoreError
from vinedresser.infra.catalog.state_folder import private_folder, state_folder

__all__ = ["database_template", "try_lock"]

# Seconds to wait for another process that makes the same template, and between two tries.
_PATIENCE, _LOOK = 120.0, 0.05


def database_template(
    product: str,
    version: str,
    made: Callable[[], AbstractContextManager[Path]],
    say: Callable[[str], object] = lambda _: None,
) -> Path:
    """Return the path of an empty database with all tables; make it if it is missing or damaged.

    Whenever a process is killed, there is a complete template or none.

    Args:
        product: "mlflow" or "prefect", the template's folder in the user's state folder.
        version: version of the product, which decides on the tables.
        made: makes such a database, and provides its path to the body of the context.
        say: is called with a sentence before a wait that may be long.

    Raises:
        StoreError: the template cannot be written.
    """
    folder = private_folder(private_folder(state_folder()) / product)
    template = folder / f"tables-{version}.db"
    try:
        if not _is_sound(template):
            with _alone(folder / "tables.lock", say):
                # Another process may have made it meanwhile.
                if not _is_sound(template):
                    say(f"creating the tables of {product} {version}, once for all stores ...")
                    with made() as database:
                        _publish(database, template)
    except OSError as error:
        raise StoreError(f"{error.filename or template}: {error.strerror}") from error
    return template


def _publish(database: Path, template: Path) -> None:
    """Copy a database to the template's path, which never shows a partial file."""
    unfinished = template.with_name(f"{template.name}.{os.getpid()}")
    # Left by a process with the same id that was killed.
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as one, closing(sqlite3.connect(unfinished)) as other:
        one.backup(other)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(template)


def _is_sound(database: Path) -> bool:
    """Return whether a database exists, has tables, and can be read."""
    if not database.is_file():
        return False
    try:
        with closing(sqlite3.connect(database)) as connection:
            # An empty file passes the check.
            [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master")
            return tables > 0 and [*connection.execute("PRAGMA quick_check")] == [("ok",)]
    except sqlite3.DatabaseError:
        return False


@contextmanager
def _alone(lock: Path, say: Callable[[str], object]) -> Iterator[None]:
    """Hold a lock file; without it after a while, since its holder may be suspended.

    It only saves work: of several processes that make the template, the last one's counts.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _PATIENCE
        if not try_lock(descriptor):
            say("waiting for another process that creates the same tables ...")
            while not try_lock(descriptor) and time.monotonic() < deadline:
                time.sleep(_LOOK)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process alone; return False if another one holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
