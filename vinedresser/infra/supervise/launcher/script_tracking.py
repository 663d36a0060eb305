"""The environment variables by which a script logs to the MLflow run of its run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from vinedresser.infra.catalog.tracking_uri import absolute_uri, mlflow_uri, sqlite_path
from vinedresser.masking import MASK
from vinedresser.store.records import MLFLOW_VARIABLE, TrackingRecord

__all__ = ["script_tracking"]

_URI = "MLFLOW_TRACKING_URI"
# Seconds that the script waits for the database, which several processes write.
_PATIENCE = 60


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
