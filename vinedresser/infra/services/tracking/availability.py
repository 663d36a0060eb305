"""Checks within a second whether a SQLite database is available.

MLflow itself waits 20 s for a lock within each call, and retries for 100 s to open a database that
it cannot open.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from vinedresser.errors import NotAFile, TrackingAway
from vinedresser.infra.catalog.tracking_uri import sqlite_path
from vinedresser.objects.files import check_file

_WAIT_SECONDS = 1.0
# The database and what SQLite keeps beside it.
_BESIDE = ("", "-journal", "-wal", "-shm")


def require_available(uri: str) -> None:
    """Return if the database is writable, or if the URI is not a SQLite URI.

    Raises:
        NotAFile: it, or a file that SQLite keeps beside it, is something else, such as a symbolic
            link.
        TrackingAway: the file is missing, cannot be opened, or is locked by another process.
    """
    path = sqlite_path(uri)
    if path is None:
        return
    try:
        for beside in _BESIDE:
            check_file(path.with_name(path.name + beside))
        _take_and_release_the_write_lock(path)
    except NotAFile:
        raise
    except (sqlite3.Error, OSError) as error:
        reason = str(error) if path.exists() else "no such file"
        raise TrackingAway(f"{uri}: {reason}") from error


def _take_and_release_the_write_lock(path: Path) -> None:
    # mode=rw: do not replace a missing database by an empty one.
    address = f"file:{quote(str(path))}?mode=rw"
    with closing(
        sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
    ) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
