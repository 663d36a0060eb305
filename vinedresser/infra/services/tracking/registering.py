"""Registering a model of an MLflow run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinedresser.errors import TrackingError
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.services.tracking.patience import persist

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["register_model"]


def register_model(uri: str, run_id: str, artifact: str, name: str, *, alias: str) -> None:
    """Make a folder of a run's artifacts a version of a registered model; idempotent.

    Args:
        uri: tracking URI, which is also that of the registry.
        run_id: id of the MLflow run.
        artifact: name of the folder.
        name: name of the registered model, created if missing.
        alias: alias that the version gets, taken from any other.

    Raises:
        TrackingError: the server or its database refused or stayed unavailable.
    """
    uri = absolute_uri(uri)

    def register() -> None:
        with connected(uri) as client:
            _ensure_model(client, name)
            there = client.search_model_versions(f"run_id = '{run_id}'")
            ours = [one for one in there if one.name == name]
            if not ours:
                source = f"{client.get_run(run_id).info.artifact_uri}/{artifact}"
                ours = [client.create_model_version(name, source, run_id)]
            client.set_registered_model_alias(name, alias, ours[0].version)

    persist(register)


def _ensure_model(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise TrackingError(f"registered model {name!r}: {error.message}") from error
