"""Fetching artifacts and registered models from MLflow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from vinedresser.errors import TrackingError
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.services.tracking.patience import persist

if TYPE_CHECKING:
    from mlflow import MlflowClient

_RUN = re.compile(r"runs:/(?P<run>[^/]+)/(?P<path>.+)")
_MODEL = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/]+)|/(?P<version>\d+))")


def download(uri: str, source: str, folder: Path) -> Path:
    """Download an artifact, a file or a folder.

    Args:
        uri: tracking URI, which is also that of the registry.
        source: ``runs:/ID/PATH`` or ``models:/NAME/VERSION``, also with ``@ALIAS``.
        folder: an existing folder, which receives it.

    Returns:
        The path of the file or folder.

    Raises:
        TrackingError: MLflow has no such artifact, or refused, or stayed unavailable.
    """
    uri = absolute_uri(uri)
    found: list[str] = []

    def fetch() -> None:
        with connected(uri) as client:
            run_id, path = _artifact(client, source)
            found.append(client.download_artifacts(run_id, path, str(folder)))

    persist(fetch)
    return Path(found[-1])


def _artifact(client: MlflowClient, source: str) -> tuple[str, str]:
    """Return the run that an artifact belongs to, and its path there."""
    if match := _RUN.fullmatch(source):
        return match["run"], match["path"]
    match = _MODEL.fullmatch(source)
    if match is None:
        raise TrackingError(f"{source}: expected runs:/ID/PATH, models:/NAME/VERSION or @ALIAS")
    # MLflow's own resolution of these URIs looks into its default registry as well.
    if match["alias"] is not None:
        version = client.get_model_version_by_alias(match["name"], match["alias"])
    else:
        version = client.get_model_version(match["name"], match["version"])
    files, run_id = version.source or "", version.run_id or ""
    root = str(client.get_run(run_id).info.artifact_uri) if run_id else "none"
    if not files.startswith(f"{root}/"):
        raise TrackingError(f"{source}: its files are not artifacts of a run: {files}")
    return run_id, files.removeprefix(f"{root}/")
