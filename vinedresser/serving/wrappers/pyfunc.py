"""Logging an MLflow model so that its requests are recorded wherever MLflow serves it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from vinedresser.serving.recording.recorder import RequestRecorder
from vinedresser.store.storage.location import is_remote


def log_recorded(
    model_uri: str,
    store: str | os.PathLike[str],
    service: str,
    *,
    name: str = "model",
    features: Sequence[str] | None = None,
    sample: float = 1.0,
    classify: Literal["logits", "probabilities", "values"] | None = None,
    registered_model_name: str | None = None,
) -> str:
    """Log an MLflow model that calls another one and records its requests.

    It is logged to the active run, or to a new one, and contains a copy of the other model. Where
    it is served, such as by ``mlflow models serve``, vinedresser must be installed.

    Args:
        model_uri: URI of the model, such as ``models:/churn/3``.
        store: directory or URL of the store; see `RequestRecorder`.
        service: name of the service.
        name: name of the logged model.
        features: see `RequestRecorder`.
        sample: see `RequestRecorder`.
        classify: see `RequestRecorder`; a function cannot be logged.
        registered_model_name: name in the model registry; None: it is not registered.

    Returns:
        URI of the logged model.

    Raises:
        ConfigError: an argument is invalid.
    """
    import mlflow

    settings: dict[str, Any] = {
        "store": os.fspath(store) if is_remote(store) else os.path.abspath(store),
        "name": service,
        "features": None if features is None else [*features],
        "sample": sample,
        "classify": classify,
    }
    # It refuses what would fail only where the model is served.
    RequestRecorder(**settings).close()
    logged = mlflow.pyfunc.log_model(
        name=name,
        python_model=str(Path(__file__).with_name("recorded_pyfunc.py")),
        artifacts={"model": model_uri},
        model_config=settings,
        signature=mlflow.models.get_model_info(model_uri).signature,
        pip_requirements=[f"vinedresser=={version('vinedresser')}"],
        registered_model_name=registered_model_name,
    )
    return str(logged.model_uri)
