"""Finishing an MLflow run: final tags, artifacts and status."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking.artifacts import check_artifacts, send_artifacts
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.services.tracking.metric_names import clean_key
from vinedresser.infra.services.tracking.patience import persist
from vinedresser.infra.services.tracking.runs import in_batches, text

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["RunStatus", "clean_tags", "finish", "reopen", "set_tags", "tags_of"]

# Finished by itself; stopped or killed; crashed.
RunStatus = Literal["FINISHED", "KILLED", "FAILED"]


def finish(
    uri: str,
    run_id: str,
    status: RunStatus,
    tags: Mapping[str, Any],
    artifacts: Mapping[str, str | os.PathLike[str]],
    *,
    metrics: Mapping[str, Sequence[tuple[int, float]]] | None = None,
    ended: float | None = None,
    timeout: float = 60.0,
) -> None:
    """Set tags, send metrics and artifacts, and set the status last, so that it means "complete".

    The call is idempotent, also after one that failed half-way.

    Args:
        status: final status.
        tags: such as ``stop.rule``, ``stop.step``, ``stop.reason``, ``exit.cause``; None values are
            skipped.
        artifacts: local file by artifact name, such as ``report.html`` or ``findings/group.json``.
        metrics: step and value of each point by key.
        ended: end time in seconds since the epoch; None: keep an earlier end time, or else now.
        timeout: seconds to retry while the database is locked or the server unavailable.

    Raises:
        TrackingError: an artifact is missing, or the server or its database refused or stayed
            unavailable; the message names the file or the URI.
    """
    uri = absolute_uri(uri)
    check_artifacts(uri, artifacts)
    cleaned = clean_tags(tags)

    def settle() -> None:
        with connected(uri) as client:
            _set_tags(client, run_id, cleaned)
            end_time = _end_time(client, run_id, ended)
            _send_metrics(client, run_id, metrics or {}, end_time)
            send_artifacts(client, run_id, artifacts)
            client.set_terminated(run_id, status, end_time)

    persist(settle, timeout)


def reopen(uri: str, run_id: str) -> None:
    """Set the status of an ended run to RUNNING again.

    Raises:
        TrackingError: the server or its database refused or stayed unavailable.
    """
    uri = absolute_uri(uri)

    def set_running() -> None:
        with connected(uri) as client:
            client.update_run(run_id, status="RUNNING")

    persist(set_running)


def set_tags(
    uri: str, run_id: str, tags: Mapping[str, Any], *, timeout: float | None = 60.0
) -> None:
    """Set tags of a run.

    Args:
        tags: values by name; None values are skipped.
        timeout: seconds to retry while the database is locked or the server unavailable; None: it
            is called once.

    Raises:
        TrackingError: the server or its database refused or is unavailable.
    """

    def send() -> None:
        with connected(absolute_uri(uri)) as client:
            _set_tags(client, run_id, clean_tags(tags))

    if timeout is None:
        send()
    else:
        persist(send, timeout)


def tags_of(uri: str, run_id: str) -> dict[str, str]:
    """Return the tags of a run, without retrying.

    Raises:
        TrackingError: the server or its database refused or is unavailable.
    """
    with connected(absolute_uri(uri)) as client:
        return dict(client.get_run(run_id).data.tags)


def clean_tags(tags: Mapping[str, Any]) -> dict[str, str]:
    """Return tags as MLflow accepts them, without those that are None."""
    return {clean_key(key): text(value) for key, value in tags.items() if value is not None}


def _set_tags(client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> None:
    from mlflow.entities import RunTag

    for batch in in_batches([RunTag(key, value) for key, value in tags.items()]):
        client.log_batch(run_id, tags=batch)


def _send_metrics(
    client: MlflowClient,
    run_id: str,
    metrics: Mapping[str, Sequence[tuple[int, float]]],
    milliseconds: int,
) -> None:
    from mlflow.entities import Metric

    points = [
        Metric(clean_key(key), value, milliseconds, step)
        for key, values in metrics.items()
        for step, value in values
    ]
    for batch in in_batches(points):
        client.log_batch(run_id, metrics=batch)


def _end_time(client: MlflowClient, run_id: str, ended: float | None) -> int:
    """Return the end time in milliseconds since the epoch."""
    if ended is None:
        before: int | None = client.get_run(run_id).info.end_time
        return before or round(time.time() * 1000)
    return round(ended * 1000)
