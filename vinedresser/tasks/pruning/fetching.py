"""Fetching the weights of a pruning from MLflow."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from vinedresser.errors import ConfigError, TrackingError
from vinedresser.infra.tracking import download
from vinedresser.tasks.config.prune_file import Pruning

__all__ = ["fetch_weights"]


def fetch_weights(pruning: Pruning) -> None:
    """Fetch the weights to the folder of the state, unless they are there or not in MLflow.

    Raises:
        ConfigError: MLflow has no such artifact, or could not be asked.
        OSError: the folder cannot be written.
    """
    source, folder = pruning.table.tracked_weights, pruning.fetched_weights
    if source is None or folder.exists():
        return
    with tempfile.TemporaryDirectory(dir=pruning.state, prefix="weights-") as part:
        try:
            found = download(pruning.experiment.tracking_uri, source, Path(part))
        except TrackingError as error:
            path = pruning.experiment.path
            raise ConfigError(f"{path}: prune.weights: {source}: {error}") from error
        if found.is_file():
            alone = Path(part, "alone")
            alone.mkdir()
            found.rename(alone / found.name)
            found = alone
        shutil.copytree(found, f"{folder}.part", dirs_exist_ok=True)
        Path(f"{folder}.part").rename(folder)
