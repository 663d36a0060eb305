"""Registering a model of an MLflow run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vinedresser.errors import TrackingError
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.services.tracking.finishing import clean_tags
from vinedresser.infra.services.tracking.patience import persist

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

__all__ = ["Shapes", "logged_model", "model_description", "register_model"]

# Dtype and shape of each tensor by name; -1 for a dimension that varies.
Shapes = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]


def register_model(
    uri: str,
    run_id: str,
    model: str | LoggedModel,
    name: str,
    *,
    alias: str,
    tags: Mapping[str, object] | None = None,
) -> str:
    """Make a model of a run a version of a registered model; idempotent.

    Nothing of the model is read.

    Args:
        uri: tracking URI, which is also that of the registry.
        run_id: id of the MLflow run.
        model: name of a folder of the run's artifacts, or what the script has logged.
        name: name of the registered model, created if missing.
        alias: alias that the version gets, taken from any other.

    Returns:
        The number of the version.

    Raises:
        TrackingError: the server or its database refused or stayed unavailable.
    """
    uri = absolute_uri(uri)
    described = clean_tags(tags or {})

    def register() -> str:
        with connected(uri) as client:
            _ensure_model(client, name)
            if isinstance(model, str):
                source, model_id = f"{client.get_run(run_id).info.artifact_uri}/{model}", None
            else:
                source, model_id = model.artifact_location, model.model_id
            there = client.search_model_versions(f"run_id = '{run_id}'")
            # The script may have registered others of its models under this name.
            ours = [
                one
                for one in there
                if one.name == name
                and (one.source == source or (model_id is not None and one.model_id == model_id))
            ]
            if ours:
                version = str(ours[0].version)
                for key, value in described.items():
                    client.set_model_version_tag(name, version, key, value)
            else:
                made = client.create_model_version(
                    *(name, source, run_id, described), model_id=model_id
                )
                version = str(made.version)
            client.set_registered_model_alias(name, alias, version)
            return version

    return persist(register)


def logged_model(uri: str, experiment_id: str, run_id: str) -> LoggedModel | None:
    """Return the last complete model that a run's script has logged; None if it has logged none.

    Args:
        uri: tracking URI.
        run_id: id of the MLflow run.

    Raises:
        TrackingError: the server or its database refused or stayed unavailable.
    """
    uri = absolute_uri(uri)

    def look() -> LoggedModel | None:
        with connected(uri) as client:
            found = client.search_logged_models([experiment_id], f"source_run_id = '{run_id}'")
            ready = [one for one in found if one.status == "READY"]
            return max(ready, key=lambda one: one.creation_timestamp, default=None)

    return persist(look)


def model_description(run_id: str, file: str, inputs: Shapes, outputs: Shapes) -> str:
    """Return the file ``MLmodel`` of a folder with the weights of a model, as YAML.

    Its flavor, "vinedresser", names the file: no library of MLflow loads weights without the code
    of their model.

    Args:
        run_id: id of the MLflow run.
        file: name of the file with the weights.
        inputs: inputs of the model; empty if unknown.
        outputs: its outputs; empty if unknown.
    """
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec

    def schema(shapes: Shapes) -> Schema | None:
        specs: list[ColSpec | TensorSpec] = [
            TensorSpec(dtype, shape, name) for name, (dtype, shape) in shapes.items()
        ]
        return Schema(specs) if specs else None

    signature = ModelSignature(schema(inputs), schema(outputs)) if inputs else None
    flavors = {"vinedresser": {"data": file}}
    return str(Model(run_id=run_id, flavors=flavors, signature=signature).to_yaml())


def _ensure_model(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise TrackingError(f"registered model {name!r}: {error.message}") from error
