"""An MLflow model that calls another one and records its requests; `log_recorded` logs it.

MLflow keeps a copy of this file with the model and runs it when the model is loaded ("models from
code"), so nothing is pickled.
"""

from __future__ import annotations

import warnings
from typing import Any

import mlflow

from vinedresser.serving.recording.recorder import RequestRecorder
from vinedresser.serving.wrappers.calls import watch_function

with warnings.catch_warnings():
    # MLflow warns of type hints of its own.
    warnings.simplefilter("ignore", UserWarning)
    from mlflow.pyfunc import PythonModel  # type: ignore[attr-defined]


class RecordedModel(PythonModel):
    """Calls the model in the artifact "model"; the model configuration is the recorder's."""

    def load_context(self, context: Any) -> None:
        """Load the model, and begin to record.

        Raises:
            ConfigError: a setting of the recorder is invalid.
        """
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


mlflow.models.set_model(RecordedModel())
