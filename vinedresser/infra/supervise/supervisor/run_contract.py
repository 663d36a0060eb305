"""A run directory as the tree that scripts for SageMaker's containers expect."""

from __future__ import annotations

from pathlib import Path

from vinedresser.errors import KeyMissing, NotAFile, StoreError
from vinedresser.infra.supervise.gpus import visible_gpus
from vinedresser.infra.supervise.sagemaker import (
    FAILURE,
    MODEL,
    OUTPUT_DATA,
    Container,
    configuration,
)
from vinedresser.infra.supervise.supervisor.crash_reason import CrashReason
from vinedresser.objects import LocalStorage
from vinedresser.objects.files import make_folder
from vinedresser.store.records import LaunchRecord, RunRecord

_MOST_BYTES = 64 * 1024


class RunContract:
    """A run directory as the tree that scripts for SageMaker's containers expect.

    Each rank is a host: ``algo-1`` and so on.

    Args:
        launch: the command, and the number of ranks.
    """

    def __init__(self, storage: LocalStorage, run: RunRecord, launch: LaunchRecord) -> None:
        self._storage = storage
        self._run = run
        self._launch = launch
        # Of ten hosts, the last is the second: scripts look for their own name in the list.
        self._hosts = sorted(f"algo-{number}" for number in range(1, launch.ranks + 1))

    def prepare(self) -> None:
        """Make the folders for the results, and write the configuration of the first host.

        Raises:
            StoreError: a file cannot be written.
            OSError: a folder cannot be made.
        """
        for folder in (MODEL, OUTPUT_DATA):
            make_folder(self._storage.location, folder)
        for key, content in configuration(self._container(0)).items():
            self._storage.put(key, [content])

    def environment(self, rank: int) -> dict[str, str]:
        """Return the variables of a rank."""
        return self._container(rank).environment()

    def failure(self) -> str:
        """Return what the script says about its failure, one line; "" if it does not."""
        try:
            content = self._storage.get(FAILURE, 0, _MOST_BYTES)
        except (KeyMissing, NotAFile, StoreError):
            return ""
        reason = CrashReason()
        reason.feed(content.decode(errors="replace").splitlines())
        return reason.text

    def _container(self, rank: int) -> Container:
        run, launch = self._run, self._launch
        own = launch.gpus_per_rank or launch.gpus
        # Of a channel on S3, the folder into which it was downloaded.
        folders = {
            name: launch.environment.get(f"SM_CHANNEL_{name.upper()}", sources[0])
            for name, sources in run.data.items()
        }
        return Container(
            base=Path(self._storage.location),
            hosts=self._hosts,
            host=self._hosts[rank],
            hyperparameters=run.parameters,
            channels=folders,
            gpus=own or len(visible_gpus()),
            command=launch.argv,
            cwd=launch.cwd,
        )
