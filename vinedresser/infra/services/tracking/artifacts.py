"""Artifacts of MLflow runs: uploading files, and downloading artifacts and registered models."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vinedresser.errors import TrackingError
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.services.tracking.patience import persist
from vinedresser.objects.files import check_file

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["check_artifacts", "download", "send_artifacts", "upload"]

_Artifacts = Mapping[str, str | os.PathLike[str]]

_RUN = re.compile(r"runs:/(?P<run>[^/]+)/(?P<path>.+)")
_MODEL = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/]+)|/(?P<version>\d+))")


def upload(uri: str, run_id: str, artifacts: _Artifacts, *, timeout: float = 60.0) -> None:
    """Upload artifacts of a run that goes on; idempotent.

    Args:
        run_id: id of the MLflow run.
        artifacts: local file by artifact name, such as ``monitor.html``.
        timeout: seconds to retry while the server is unavailable.

    Raises:
        TrackingError: an artifact is missing, or the server refused or stayed unavailable.
    """
    uri = absolute_uri(uri)
    check_artifacts(uri, artifacts)

    def send() -> None:
        with connected(uri) as client:
            send_artifacts(client, run_id, artifacts)

    persist(send, timeout)


def check_artifacts(uri: str, artifacts: _Artifacts) -> None:
    """Check that artifacts exist and have names that stay within the run.

    Raises:
        TrackingError: one does not; the message names it.
        NotAFile: one is something else, such as a symbolic link.
    """
    for name, path in artifacts.items():
        if not os.path.lexists(path):
            raise TrackingError(f"{uri}: artifact {name!r}: no such file {os.fspath(path)}")
        check_file(Path(path))
        if name.startswith("/") or ".." in name.split("/"):
            raise TrackingError(f"{uri}: artifact {name!r}: give a relative name without '..'")


def send_artifacts(client: MlflowClient, run_id: str, artifacts: _Artifacts) -> None:
    """Upload artifacts with one request of a client."""
    if artifacts:
        with _staged(artifacts) as folder:
            client.log_artifacts(run_id, str(folder))


@contextmanager
def _staged(artifacts: _Artifacts) -> Iterator[Path]:
    """Provide a folder with links to the files under their artifact names."""
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as folder:
        for name, path in artifacts.items():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(Path(path).absolute())
        yield Path(folder)


def download(uri: str, source: str, folder: Path) -> Path:
    """Download an artifact, a file or a folder.

    Args:
        uri: tracking URI, which is also that of the registry.
        source: ``runs:/ID/PATH`` or ``models:/NAME/VERSION``, also with ``@ALIAS``.
        folder: an existing folder, which receives it.

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
