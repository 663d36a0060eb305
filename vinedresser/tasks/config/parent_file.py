"""What the files of a sweep and of a pruning have in common: a store of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from vinedresser.infra.catalog.stores import local_state
from vinedresser.objects import LocalStorage
from vinedresser.objects.files import folder_below
from vinedresser.store.records import ParentRecord
from vinedresser.tasks.config.experiment import Experiment

__all__ = ["ParentFile", "with_own_store"]


@dataclass(frozen=True)
class ParentFile:
    """A checked file whose runs are in a store of their own.

    Attributes:
        experiment: settings that the runs share; its store is their own.
    """

    RECORD: ClassVar[type[ParentRecord]]

    experiment: Experiment

    @property
    def name(self) -> str:
        """Name of the sweep or pruning."""
        return self.experiment.run.name

    @property
    def state(self) -> Path:
        """Folder of its state on this machine."""
        return local_state(self.experiment.store)

    @property
    def lock(self) -> Path:
        """Path of the file that is locked while a process runs it."""
        return self.state / self.RECORD.LOCK

    @property
    def page(self) -> Path:
        """Path of the page about it."""
        return self.state / self.RECORD.PAGE

    @property
    def has_begun(self) -> bool:
        """Whether its store has a record of it."""
        return LocalStorage(self.state).exists(self.RECORD.KEY)

    @property
    def fetched_weights(self) -> Path:
        """Folder of the state to which the weights of prunings are fetched from MLflow."""
        return self.state / "weights"

    def marked(self, mark: str) -> Self:
        """Return it as a separate one, NAME-MARK, with a store beside its own.

        Raises:
            NotAFile: the store is something else than a folder, such as a symbolic link.
        """
        outer = replace(self.experiment, store=self.experiment.store.parent)
        return replace(self, experiment=with_own_store(outer, f"{self.name}-{mark}"))


def with_own_store(experiment: Experiment, name: str) -> Experiment:
    """Return an experiment with another name, and with a store of that name within its own.

    Raises:
        NotAFile: the store is something else than a folder, such as a symbolic link.
    """
    run = replace(experiment.run, name=name)
    outer = experiment.store
    store = folder_below(outer, name) if isinstance(outer, Path) else outer / name
    return replace(experiment, run=run, store=store)
