"""MLflow tracking, off the training path, through `MlflowClient` with explicit run ids only.

Importing this package does not import mlflow; the first call that needs it does.
"""

from __future__ import annotations

from vinedresser.infra.services.tracking.artifacts import download, upload
from vinedresser.infra.services.tracking.bounding import Bounding
from vinedresser.infra.services.tracking.finishing import (
    RunStatus,
    finish,
    reopen,
    set_tags,
    tags_of,
)
from vinedresser.infra.services.tracking.metric_names import MetricNames
from vinedresser.infra.services.tracking.metric_sink import MetricSink, thin
from vinedresser.infra.services.tracking.preparation import prepare_tracking, start_preparing
from vinedresser.infra.services.tracking.registering import (
    Shapes,
    logged_model,
    model_description,
    register_model,
)
from vinedresser.infra.services.tracking.runs import (
    DIRECTORY_TAG,
    NOTE_TAG,
    RUN_TAG,
    create_run,
    directory_of,
)
from vinedresser.infra.services.tracking.verdict_view import save_verdict_view

__all__ = [
    "Bounding",
    "DIRECTORY_TAG",
    "NOTE_TAG",
    "RUN_TAG",
    "MetricNames",
    "MetricSink",
    "RunStatus",
    "create_run",
    "directory_of",
    "download",
    "finish",
    "prepare_tracking",
    "register_model",
    "Shapes",
    "logged_model",
    "model_description",
    "reopen",
    "save_verdict_view",
    "set_tags",
    "start_preparing",
    "tags_of",
    "thin",
    "upload",
]
