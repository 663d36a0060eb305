"""Where a run is made and where it belongs: one directory, unless that is on an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath

from vinedresser.capture.attach.launching import further_runs

__all__ = ["RunPlace"]


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
        self.further: list[RunPlace] = []
        self.recorded = False
        self._known: set[Path] = set()

    @property
    def location(self) -> Path | str:
        """Where readers find it."""
        return self.directory

    @property
    def name(self) -> str:
        """What the run is called, in its store."""
        return PurePath(self.location).name

    def begin(self) -> None:
        """Get ready for a training that is about to be started."""

    def look(self, equip: Callable[[Path], None]) -> list[RunPlace]:
        """Return the places of the further trainings that have begun since the last look.

        Args:
            equip: puts into a directory what is to be there before anybody looks into it.
        """
        begun = [one for one in further_runs(self.directory) if one not in self._known]
        self._known.update(begun)
        for directory in begun:
            equip(directory)
        places = [place for one in begun if (place := self._beside(one)) is not None]
        self.further += places
        return places

    def complete(self) -> list[RunPlace]:
        """Have this run and the further ones of its script, all over, be where they belong.

        Returns:
            Those of them that are.
        """
        return [self, *self.further]

    def _beside(self, directory: Path) -> RunPlace | None:
        """Return the place of a further training; None where it cannot be used."""
        return RunPlace(directory)
