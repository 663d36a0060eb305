"""The checkpoint of a training that is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from vinedresser.capture.shield import Shield
from vinedresser.objects import Storage
from vinedresser.objects.files import folder_below

__all__ = ["save_final_checkpoint"]


def save_final_checkpoint(
    storage: Storage,
    saves: Iterable[Callable[[Path, int], object]],
    steps: int,
    shield: Shield,
    folder: str = "checkpoints",
) -> None:
    """Save the state of a training that is about to end.

    Args:
        saves: functions that save, given the folder and the number of finished steps.
        shield: guards the functions.
        folder: folder within the run.
    """
    guard = shield.guard
    then = "the run ends without it"
    create = guard("creating the checkpoint directory", _created, then=then)
    directory = create(Path(storage.location), folder)
    if directory is None:
        return
    for save in saves:
        guard("saving a checkpoint", save, then=then)(directory, steps)


def _created(run: Path, folder: str) -> Path:
    directory = folder_below(run, folder)
    # Each by itself: a run that has been removed stays so.
    for path in reversed([directory, *directory.parents[: len(Path(folder).parts) - 1]]):
        path.mkdir(exist_ok=True)
    return directory
