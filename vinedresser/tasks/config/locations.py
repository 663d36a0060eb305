"""Where a file of settings keeps its runs, and MLflow's tracking URI, as absolute locations."""

from __future__ import annotations

import os
from pathlib import Path

from vinedresser.errors import ConfigError
from vinedresser.infra.catalog.known_tracking import TRACKING_VARIABLE
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.objects import Location, parse_location

__all__ = ["store_in", "tracking_uri_in"]


def store_in(given: str | os.PathLike[str], base: Path) -> Location:
    """Return a store as an absolute path or a URL.

    Args:
        given: a path, or the URL of an object store.
        base: folder to which a path is relative.

    Raises:
        ConfigError: the URL is invalid.
    """
    store = parse_location(given)
    return (base / store.expanduser()).resolve() if isinstance(store, Path) else store


def tracking_uri_in(uri: str | None, base: Path, state: Path, where: str) -> str:
    """Return MLflow's tracking URI.

    The default is ``MLFLOW_TRACKING_URI``, else a SQLite database in the folder of the state.

    Args:
        uri: the URI of the file; None: the default.
        base: folder to which the path of a database is relative.
        state: folder of the state on this machine.
        where: beginning of messages.

    Raises:
        ConfigError: MLflow does not support the URI.
    """
    given = os.environ.get(TRACKING_VARIABLE)
    if uri is None and given:
        uri, base, where = given, Path.cwd(), TRACKING_VARIABLE
    try:
        if uri is None:
            return absolute_uri("sqlite:///mlflow.db", state)
        return absolute_uri(uri, base)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
