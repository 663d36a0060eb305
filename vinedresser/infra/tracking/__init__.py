"""MLflow tracking, off the training path, through `MlflowClient` with explicit run ids only.

Importing this package does not import mlflow; the first call that needs it does.
"""

from __future__ import annotations

from vinedresser.infra.tracking.artifacts import upload
from vinedresser.infra.tracking.bounding import Bounding
from vinedresser.infra.tracking.downloading import download
from vinedresser.infra.tracking.finishing import RunStatus, finish, reopen, set_tags, tags_of
from vinedresser.infra.tracking.location import absolute_uri
from vinedresser.infra.tracking.metric_names import MetricNames
from vinedresser.infra.tracking.metric_sink import MetricSink
from vinedresser.infra.tracking.preparation import prepare_tracking, start_preparing
from vinedresser.infra.tracking.registering import register_model
from vinedresser.infra.tracking.runs import (
    DIRECTORY_TAG,
    NOTE_TAG,
    RUN_TAG,
    create_run,
    directory_of,
)
from vinedresser.infra.tracking.thinning import thin
from vinedresser.infra.tracking.verdict_view import save_verdict_view

__all__ = [
    "Bounding",
    "DIRECTORY_TAG",
    "NOTE_TAG",
    "RUN_TAG",
    "MetricNames",
    "MetricSink",
    "RunStatus",
    "absolute_uri",
    "create_run",
    "directory_of",
    "download",
    "finish",
    "prepare_tracking",
    "register_model",
    "reopen",
    "save_verdict_view",
    "set_tags",
    "start_preparing",
    "tags_of",
    "thin",
    "upload",
]
