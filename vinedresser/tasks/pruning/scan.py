"""The sensitivity of each group of channels, measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from vinedresser.errors import PruningError
from vinedresser.infra.entry import parameters_as_arguments
from vinedresser.pruning.rounds.scanning import ENTRY
from vinedresser.tasks.config.prune_file import Pruning
from vinedresser.tasks.pruning.fetching import fetch_weights


def scan_groups(pruning: Pruning) -> dict[str, dict[int, float]]:
    """Return the figure by group and number of removed channels; see `vinedresser.pruning.scan`.

    Args:
        pruning: the pruning; nothing is recorded.

    Raises:
        PruningError: the process failed; it has printed why.
    """
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as folder:
        destination = Path(folder, "scan.json")
        fetch_weights(pruning.table, pruning.experiment, pruning.fetched_weights)
        parameters = {**pruning.settings, "destination": str(destination)}
        command = [sys.executable, "-m", "vinedresser.infra.entry", ENTRY]
        done = subprocess.run(
            [*command, *parameters_as_arguments(parameters)],
            cwd=pruning.experiment.cwd,
            env=os.environ | pruning.experiment.run.environment,
            check=False,
        )
        if done.returncode:
            raise PruningError(f"the scan failed with exit code {done.returncode}")
        scanned = json.loads(destination.read_bytes())
    return {
        name: {int(count): figure for count, figure in figures.items()}
        for name, figures in scanned.items()
    }
