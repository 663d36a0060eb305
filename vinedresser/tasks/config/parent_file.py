"""What the files of a sweep and of a pruning have in common: a store of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from vinedresser.store.records import ParentRecord
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.stores import local_state

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


def with_own_store(experiment: Experiment, name: str, mark: str = "") -> Experiment:
    """Return an experiment with another name, and with a store of that name within its own.

    Args:
        experiment: the experiment.
        name: the name.
        mark: suffix of the name; "" for none.
    """
    name = "-".join(filter(None, (name, mark)))
    run = replace(experiment.run, name=name)
    return replace(experiment, run=run, store=experiment.store / name)
