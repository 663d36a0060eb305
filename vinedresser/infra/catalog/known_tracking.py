"""The tracking URIs that this user's flows have used for a store; no others count.

The records in a store name a tracking URI, but a store may come from somebody else, or be a copy.
Its files must not choose the server that gets data, nor the database that is changed.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from vinedresser.errors import ConfigError, CorruptData, UntrustedTracking
from vinedresser.infra.catalog.stores import private_state
from vinedresser.infra.catalog.tracking_uri import absolute_uri, sqlite_path
from vinedresser.masking import masked_text
from vinedresser.objects import LocalStorage, Location, open_storage
from vinedresser.objects.files import check_file
from vinedresser.plain_logs import plain_logger
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.records import TrackingRecord, read_record

__all__ = [
    "TRACKING_VARIABLE",
    "known_uris",
    "read_tracking",
    "remember_tracking",
    "require_known",
    "tracking",
    "with_known_uri",
]

_log = plain_logger(__name__)

# MLflow's own variable.
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
_NOTES = "tracking"


def remember_tracking(store: Location, uri: str) -> None:
    """Note that a flow of this user keeps the runs of a store at a tracking URI.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    LocalStorage(private_state(store)).put(_key(uri), [uri.encode()])


def known_uris(store: Location) -> list[str]:
    """Return the tracking URIs at which flows of this user have kept the runs of a store.

    Raises:
        StoreError: the user's state folder cannot be read.
    """
    notes = LocalStorage(private_state(store))
    return [notes.get(key).decode() for key in notes.list(f"{_NOTES}/")]


def require_known(store: Location, uri: str) -> str:
    """Refuse a tracking URI that this user has not used for a store.

    Args:
        store: the store whose records name it.
        uri: the tracking URI, in which a password is masked.

    Returns:
        The tracking URI with its password.

    Raises:
        UntrustedTracking: neither a flow of this user has used it for this store, nor does
            ``MLFLOW_TRACKING_URI`` name it.
        StoreError: the user's state folder cannot be read.
    """
    notes = LocalStorage(private_state(store))
    if notes.exists(_key(uri)):
        return notes.get(_key(uri)).decode()
    named = _from_environment()
    if masked_text(named) == masked_text(uri):
        return named
    raise UntrustedTracking(
        f"its records name {uri}, where none of your flows has kept the runs of "
        f"{store}; if it is yours, set {TRACKING_VARIABLE}={uri} and repeat the command"
    )


def read_tracking(location: Location) -> TrackingRecord | None:
    """Return the tracking record of a run; None if MLflow does not track it.

    Raises:
        UntrustedTracking: see `require_known`.
        CorruptData: the record cannot be read.
        StoreError: the storage refused.
    """
    record = read_record(open_storage(location), TrackingRecord)
    if record is None:
        return None
    return with_known_uri(location, record)


def with_known_uri(location: Location, record: TrackingRecord) -> TrackingRecord:
    """Return the tracking record of a run with the password of its URI.

    Raises:
        UntrustedTracking: see `require_known`.
        StoreError: the user's state folder cannot be read.
    """
    return replace(record, uri=require_known(_store_of(location), record.uri))


def tracking(store: Location) -> TrackingRecord:
    """Return the tracking record of a run or monitor in a store: where MLflow keeps them all.

    Raises:
        ConfigError: no run is tracked, or MLflow's database is not on this machine.
        UntrustedTracking: see `require_known`.
        StoreError: the store refused a request.
    """
    for location in (*runs_in(store), *_monitored(store)):
        try:
            record = read_tracking(location)
        except CorruptData as error:
            _log.warning("%s", error)
            continue
        if record is not None:
            _check_database(record.uri, store)
            return record
    raise ConfigError(f"{store}: no run in it is tracked by MLflow; `vinedresser train` does that")


def _monitored(store: Location) -> list[Path]:
    """Return the lives of monitors in a folder of monitors, or of one monitor."""
    if not isinstance(store, Path):
        return []
    storage = LocalStorage(store)
    prefixes = ("life-", *(f"{folder}/life-" for folder in storage.folders()))
    return [store / f"{prefix}{life}" for prefix in prefixes for life in storage.folders(prefix)]


def _check_database(uri: str, store: Location) -> None:
    """Refuse a database that is not on this machine: MLflow would create an empty one."""
    path = sqlite_path(uri)
    if path is None:
        return
    check_file(path)
    if not path.exists():
        raise ConfigError(
            f"{path}: no such file; MLflow's database of {store} is gone, or on another machine"
        )


def _store_of(location: Location) -> Location:
    if not isinstance(location, Path):
        return location.parent
    return Path(os.path.realpath(location)).parent


def _from_environment() -> str:
    """Return the tracking URI that the user's environment names; "" if it names none."""
    named = os.environ.get(TRACKING_VARIABLE, "")
    try:
        return absolute_uri(named)
    except ConfigError:
        # A folder, "databricks" and the like, which no flow uses.
        return ""


def _key(uri: str) -> str:
    """Return the key of the note about a tracking URI, the same with and without its password."""
    return f"{_NOTES}/{hashlib.sha256(masked_text(uri).encode()).hexdigest()}"
