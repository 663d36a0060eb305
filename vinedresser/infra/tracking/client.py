"""A quiet MLflow client, and the translation of MLflow's errors.

Only `MlflowClient` is used, never the fluent API (`mlflow.log_metric` and its like): that keeps
"the active run" per thread, and in a thread without one it silently opens a stray run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from vinedresser.errors import MissingDependency, TrackingAway, TrackingError
from vinedresser.infra.tracking.availability import require_available
from vinedresser.infra.tracking.location import mlflow_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["connected"]

# Read by mlflow when it is imported, or at each call; none of it may phone home.
_TELEMETRY_OFF = {"DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
# MLflow's own retries (7, with 120 s each) are for callers without a thread of their own.
_UNLESS_SET = {
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}
# Another try would meet the same answer.
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
_LONGEST_MESSAGE = 400


@contextmanager
def connected(uri: str) -> Iterator[MlflowClient]:
    """Give a client for the body, in which MLflow's errors become ours.

    Args:
        uri: absolute tracking URI.

    Raises:
        MissingDependency: mlflow is not installed.
        TrackingAway: the server is away or its database locked; try again later.
        TrackingError: it refused, and will refuse again.
    """
    require_available(uri)
    _import_quietly()
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
        kind = TrackingError if error.error_code in _FINAL else TrackingAway
        raise kind(_message(uri, error)) from error
    except (OperationalError, requests.RequestException) as error:
        raise TrackingAway(_message(uri, error)) from error
    # The last are of local files: the database's directory, or where artifacts go.
    except (SQLAlchemyError, CommandError, OSError) as error:
        raise TrackingError(_message(uri, error)) from error


@cache
def _import_quietly() -> None:
    """Import mlflow with telemetry off, short time-outs and its chatter held back."""
    os.environ.update(_TELEMETRY_OFF)
    for name, value in _UNLESS_SET.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"MLflow is not installed ({error}); pip install 'vinedresser[flows]' brings it"
        ) from error
    for name in ("alembic", "mlflow"):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))
    # It logs the traceback of each error that it also raises.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def _message(uri: str, error: Exception) -> str:
    text = " ".join(str(error).split())
    if len(text) > _LONGEST_MESSAGE:
        text = text[: _LONGEST_MESSAGE - 1] + "…"
    return f"{uri}: {text}"
