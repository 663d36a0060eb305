"""Where a run is made and where it belongs: one directory, unless that is on an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vinedresser.capture.attach.launching import additional_runs
from vinedresser.infra.launcher import settle, start, wait_for_exit
from vinedresser.store.records import ExitRecord
from vinedresser.store.storage import Location

__all__ = ["AdoptedPlace", "RunPlace"]


class RunPlace:
    """A run's directory.

    Args:
        directory: where it is made.

    Attributes:
        directory: where it is made.
        further: the places of the further trainings of its script, those that were seen so far.
        recorded: whether MLflow has all of its metrics.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.additional: list[RunPlace] = []
        self.recorded = False
        self._known: set[Path] = set()

    @property
    def location(self) -> Location:
        """Where readers find it."""
        return self.directory

    @property
    def name(self) -> str:
        """What the run is called, in its store."""
        return self.location.name

    @property
    def control(self) -> Location:
        """Where to put what is asked of it while it trains."""
        return self.directory

    @property
    def elsewhere(self) -> bool:
        """Whether a worker of a cluster trains, whose end is not that of this process."""
        return False

    def begin(self) -> None:
        """Get ready for a training that is about to be started."""

    def appear(self) -> bool:
        """Wait until readers find the run; return whether they do, and not that it never began."""
        return True

    def train(self) -> ExitRecord:
        """Start the training, and return how it ended.

        Raises:
            LaunchError: it could not be started.
            StoreError: the directory refused.
        """
        start(self.directory).wait()
        # Mostly there is nothing to settle; there is when the supervisor itself was killed.
        return settle(self.directory)

    def look(self, equip: Callable[[Path], None]) -> list[RunPlace]:
        """Return the places of the further trainings that have begun since the last look.

        Args:
            equip: puts into a directory what is to be there before anybody looks into it.
        """
        begun = [one for one in additional_runs(self.directory) if one not in self._known]
        self._known.update(begun)
        for directory in begun:
            equip(directory)
        places = [place for one in begun if (place := self._beside(one)) is not None]
        self.additional += places
        return places

    def complete(self) -> list[RunPlace]:
        """Have this run and the further ones of its script, all over, be where they belong.

        Returns:
            Those of them that are.
        """
        return [self, *self.additional]

    def _beside(self, directory: Path) -> RunPlace | None:
        """Return the place of a further training; None where it cannot be used."""
        return RunPlace(directory)


class AdoptedPlace(RunPlace):
    """The directory of a run that another process started, and that goes on for this one."""

    def train(self) -> ExitRecord:
        """Wait for the end of the training, and return how it ended.

        Raises:
            StoreError: the directory refused.
        """
        wait_for_exit(self.directory)
        return settle(self.directory)
