"""The last checkpoint of a run from before something went wrong in it."""

from __future__ import annotations

import numpy as np

from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.tasks.places.checkpoints import SavedCheckpoint, saved_checkpoints

__all__ = ["healthy_checkpoint"]

# A loss is taken as the median of this number of steps.
_STEPS = 5


def healthy_checkpoint(run: Run, since: int) -> SavedCheckpoint | None:
    """Return the last checkpoint of a run while it was healthy; None if there is none.

    All its steps came before the fault, and no loss was then higher than at the beginning: a rule
    may fire long after the fault began.

    Args:
        run: a run in a directory.
        since: first step at which something was wrong.
    """
    losses = [column.of("train") for column in run.scalars("losses").values()]
    for one in saved_checkpoints(run.storage):
        if one.steps <= since and all(_not_risen(loss, one.steps) for loss in losses):
            return one
    return None


def _not_risen(loss: Column, steps: int) -> bool:
    """Return whether a loss was not higher after this number of steps than at the beginning."""
    until = loss.values[loss.steps < steps]
    return not len(until) or bool(np.median(until[-_STEPS:]) <= np.median(until[:_STEPS]))
