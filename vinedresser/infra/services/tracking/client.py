"""A quiet MLflow client that raises vinedresser's errors.

Only `MlflowClient` is used, never the fluent API such as `mlflow.log_metric`, which keeps an active
run per thread, and silently opens a stray run in a thread without one.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from vinedresser.errors import MissingDependency, NotAFile, TrackingAway, TrackingError
from vinedresser.infra.catalog.tracking_uri import mlflow_uri, sqlite_path
from vinedresser.objects.files import check_file

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["connected", "mlflow_version"]

# MLflow's own retries (7, with 120 s each) are replaced by vinedresser's.
_UNLESS_SET = {
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}
# Errors that a retry would meet again.
_FINAL = frozenset(
    {
        "CUSTOMER_UNAUTHORIZED",
        "ENDPOINT_NOT_FOUND",
        "FEATURE_DISABLED",
        "INVALID_PARAMETER_VALUE",
        "INVALID_STATE",
        "PERMISSION_DENIED",
        "RESOURCE_DOES_NOT_EXIST",
        "UNAUTHENTICATED",
    }
)
# MLflow calls a database of another version an internal error, as it does an outage.
_SCHEMA = "database schema"
_LONGEST_MESSAGE = 400

# MLflow itself waits 20 s for a lock of SQLite within each call, and retries for 100 s to open a
# database that it cannot open.
_WAIT_SECONDS = 1.0
# The database and what SQLite keeps beside it.
_BESIDE = ("", "-journal", "-wal", "-shm")


@contextmanager
def connected(uri: str) -> Iterator[MlflowClient]:
    """Provide a client to the body, in which MLflow's errors are converted to vinedresser's.

    Args:
        uri: absolute tracking URI.

    Raises:
        MissingDependency: mlflow is not installed.
        TrackingAway: the server is unavailable or its database locked; a retry may succeed.
        TrackingError: the server refused; a retry will fail, too.
    """
    _require_available(uri)
    mlflow_version()
    import requests
    from alembic.util.exc import CommandError
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import OperationalError, SQLAlchemyError

    try:
        yield MlflowClient(tracking_uri=mlflow_uri(uri))
    except TrackingError:
        raise
    except MlflowException as error:
        final = error.error_code in _FINAL or _SCHEMA in str(error)
        kind = TrackingError if final else TrackingAway
        raise kind(_message(uri, error)) from error
    except (OperationalError, requests.RequestException) as error:
        raise TrackingAway(_message(uri, error)) from error
    # OSError: of local files, such as the database's directory or the artifacts.
    except (SQLAlchemyError, CommandError, OSError) as error:
        raise TrackingError(_message(uri, error)) from error


@cache
def mlflow_version() -> str:
    """Import mlflow with short time-outs and fewer log messages.

    Returns:
        Its version.

    Raises:
        MissingDependency: it is not installed.
    """
    for name, value in _UNLESS_SET.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import __version__
    except ImportError as error:
        raise MissingDependency(
            f"MLflow is not installed ({error}): pip install 'vinedresser[flows]'"
        ) from error
    for name in ("alembic", "mlflow"):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))
    # It logs tracebacks of errors that it also raises.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return str(__version__)


def _message(uri: str, error: Exception) -> str:
    text = " ".join(str(error).split())
    if len(text) > _LONGEST_MESSAGE:
        text = text[: _LONGEST_MESSAGE - 1] + "…"
    return f"{uri}: {text}"


def _require_available(uri: str) -> None:
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
