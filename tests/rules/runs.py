"""Runs that several tests judge: each training is run once per test session."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

__all__ = ["RunStore"]


class RunStore:
    """A folder of finished runs that the workers of pytest-xdist share.

    Args:
        folder: existing folder, the same for all workers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str, train: Callable[[Path], object]) -> Path:
        """Return the directory of a run, and train it unless a test has done so before.

        Tests must not change the run.

        Args:
            name: name of the training and its arguments, such as "trainings/overfit".
            train: trains and leaves a run in the directory that it is given.
        """
        directory = self._folder / name
        directory.parent.mkdir(parents=True, exist_ok=True)
        trained = directory.with_name(f"{directory.name}.trained")
        with directory.with_name(f"{directory.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not trained.exists():
                train(directory)
                trained.touch()
        return directory
