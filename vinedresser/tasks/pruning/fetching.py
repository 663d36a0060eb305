"""Fetching the weights of a pruning from MLflow."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from vinedresser.errors import ConfigError, TrackingError
from vinedresser.infra.services.tracking import download
from vinedresser.objects.files import folder_below
from vinedresser.pruning.rounds.settings import PruneTable
from vinedresser.tasks.config.experiment import Experiment


def fetch_weights(table: PruneTable, experiment: Experiment, folder: Path) -> None:
    """Fetch the weights to a folder, unless they are there or not in MLflow.

    Args:
        table: settings of the pruning.
        experiment: the file's experiment.
        folder: the folder, in an existing one.

    Raises:
        ConfigError: MLflow has no such artifact, or could not be asked.
        NotAFile: the folder is something else, such as a symbolic link.
        OSError: the folder cannot be written.
    """
    source = table.tracked_weights
    folder = folder_below(folder.parent, folder.name)
    if source is None or folder.exists():
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="weights-") as part:
        try:
            found = download(experiment.tracking_uri, source, Path(part))
        except TrackingError as error:
            raise ConfigError(f"{experiment.path}: prune.weights: {source}: {error}") from error
        if found.is_file():
            alone = Path(part, "alone")
            alone.mkdir()
            found.rename(alone / found.name)
            found = alone
        # MLflow may have given a folder of its own.
        shutil.copytree(found, Path(part, "whole")).rename(folder)
