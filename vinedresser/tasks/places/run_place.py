"""The place of a run: where it is made, and where it belongs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from vinedresser.capture.attach.launching import additional_runs
from vinedresser.errors import RunRemoved, StillRunning
from vinedresser.infra.supervise.launcher import (
    abandon,
    end_processes,
    settle,
    supervise,
    wait_for_exit,
)
from vinedresser.objects import LocalStorage, Location
from vinedresser.objects.files import is_missing
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    RunRecord,
    TrackingRecord,
    read_record,
)

__all__ = ["REMOVED", "AdoptedPlace", "RunPlace"]

# Seconds for the end of ranks on other hosts, which notice the death of their supervisor after a
# minute, and count as gone a minute after their last heartbeat; and between two looks.
_PATIENCE, _LOOK = 180.0, 0.5
REMOVED = "{}: the run directory was removed while a flow used it; its training was ended"


class RunPlace:
    """A run directory on this machine, in which the run is made and stays.

    Attributes:
        additional: places of the additional runs of its script that have begun so far.
        arrived: places of those runs that are complete in their store, after `complete`.
        recorded: whether MLflow has all of its metrics.
        tracking: its MLflow run; None if it has none.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.additional: list[RunPlace] = []
        self.arrived: list[RunPlace] = []
        self.recorded = False
        self.tracking: TrackingRecord | None = None
        self._known: set[Path] = set()

    @property
    def location(self) -> Location:
        """Location at which readers find the run."""
        return self.directory

    @property
    def name(self) -> str:
        """Name of the run in its store."""
        return self.location.name

    @property
    def control(self) -> Location:
        """Location for requests to the run while it trains."""
        return self.directory

    @property
    def elsewhere(self) -> bool:
        """Whether a worker of a cluster trains the run; it then survives this process."""
        return False

    @property
    def removed(self) -> bool:
        """Whether the run's directory was removed."""
        return is_missing(self.directory / RunRecord.KEY)

    def begin(self) -> None:
        """Get ready for the launch, which follows at once."""

    def appear(self) -> bool:
        """Wait until readers find the run; return False if it never began."""
        return True

    def train(self) -> ExitRecord:
        """Start the training, wait for its end, and return how it ended.

        Raises:
            LaunchError: the training could not be started.
            RunRemoved: its directory was removed; the training was ended.
            StoreError: the directory cannot be read or written.
        """
        return self._await_end(supervise)

    def abandon(self, reason: str) -> None:
        """Record that the training could not be started, unless it was.

        Args:
            reason: one sentence.

        Raises:
            StoreError: the directory cannot be read or written.
        """
        abandon(self.directory, reason)

    def find_additional(self, equip: Callable[[Path], None]) -> list[RunPlace]:
        """Return the places of additional runs that have begun since the last call.

        Args:
            equip: adds to a run's directory the files that its readers expect.
        """
        begun = [run for run in additional_runs(self.directory) if run not in self._known]
        self._known.update(begun)
        for directory in begun:
            equip(directory)
        places = [place for one in begun if (place := self._beside(one)) is not None]
        self.additional += places
        return places

    def complete(self) -> None:
        """Bring this run and the additional runs of its script, all over, to their store."""
        self.arrived = [self, *self.additional]

    def _await_end(self, wait: Callable[[Path], object]) -> ExitRecord:
        """Wait for the end of the training with a function, and return how it ended."""
        run = read_record(LocalStorage(self.directory), RunRecord)
        wait(self.directory)
        if run is not None and self.removed:
            end_processes(self.directory, run.id)
            raise RunRemoved(REMOVED.format(self.directory))
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                # Writes the exit record if the supervisor was killed.
                return settle(self.directory)
            except StillRunning:
                # Ranks on other hosts, which end once they notice.
                launch = read_record(LocalStorage(self.directory), LaunchRecord)
                elsewhere = launch is not None and launch.elsewhere
                if not elsewhere or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK)

    def _beside(self, directory: Path) -> RunPlace | None:
        """Return the place of an additional run; None if it cannot be used."""
        return RunPlace(directory)


class AdoptedPlace(RunPlace):
    """The directory of a run that an earlier process started and this one has adopted."""

    def train(self) -> ExitRecord:
        """Wait for the end of the training and return how it ended.

        Raises:
            RunRemoved: its directory was removed; the training was ended.
            StoreError: the directory cannot be read or written.
        """
        return self._await_end(wait_for_exit)
