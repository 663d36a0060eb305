"""Logging an MLflow model so that its requests are recorded wherever MLflow serves it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from vinedresser.objects.location import is_remote
from vinedresser.serving.recording.recorder import RequestRecorder
from vinedresser.serving.wrappers.calls import watch_function

__all__ = ["log_recorded", "recorded_model"]

# MLflow keeps this program with the model and runs it when the model is loaded ("models from
# code"), so nothing is pickled.
_CODE = """\
import mlflow
from vinedresser.serving.wrappers.pyfunc import recorded_model

mlflow.models.set_model(recorded_model())
"""


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
    with TemporaryDirectory() as folder:
        code = Path(folder) / "recorded.py"
        code.write_text(_CODE, encoding="utf-8")
        logged = mlflow.pyfunc.log_model(
            name=name,
            python_model=str(code),
            artifacts={"model": model_uri},
            model_config=settings,
            signature=mlflow.models.get_model_info(model_uri).signature,
            pip_requirements=[f"vinedresser=={version('vinedresser')}"],
            registered_model_name=registered_model_name,
        )
    return str(logged.model_uri)


def recorded_model() -> Any:
    """Return the model that `log_recorded` logs, a `mlflow.pyfunc.PythonModel`."""
    from mlflow.pyfunc import PythonModel  # type: ignore[attr-defined]

    class RecordedModel(PythonModel):
        """Calls the model in the artifact "model"; the model configuration is the recorder's."""

        def load_context(self, context: Any) -> None:
            """Load the model, and begin to record."""
            import mlflow

            inner = mlflow.pyfunc.load_model(context.artifacts["model"])
            recorder = RequestRecorder(**context.model_config)
            self._predict = watch_function(inner.predict, recorder)

        def predict(
            self,
            context: Any,  # noqa: ARG002 (MLflow passes it)
            model_input: Any,
            params: dict[str, Any] | None = None,
        ) -> Any:
            """Return the predictions of the model."""
            return self._predict(model_input, params=params)

    return RecordedModel()
