"""The checkpoint of a training that is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from vinedresser.capture.shield import Shield
from vinedresser.store.storage import Storage

__all__ = ["save_final_checkpoint"]


def save_final_checkpoint(
    storage: Storage, saves: Iterable[Callable[[Path, int], object]], steps: int, shield: Shield
) -> None:
    """Save the state of a training that is about to end, in the run's folder of checkpoints.

    Args:
        storage: storage of the run.
        saves: functions that save, given the folder and the number of finished steps.
        steps: number of finished steps.
        shield: guards the functions.
    """
    guard = shield.guard
    directory = Path(storage.location, "checkpoints")
    guard("creating the checkpoint directory", directory.mkdir)(exist_ok=True)
    for save in saves:
        guard("saving a checkpoint", save, then="the run stops without it")(directory, steps)
