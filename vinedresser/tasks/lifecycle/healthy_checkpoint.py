"""The last checkpoint of a run that was saved before something went wrong in it."""

from __future__ import annotations

import numpy as np

from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.tasks.places.checkpoints import SavedCheckpoint, saved_checkpoints

__all__ = ["healthy_checkpoint"]

# A loss is taken as the median of so many steps.
_STEPS = 5


def healthy_checkpoint(run: Run, since: int) -> SavedCheckpoint | None:
    """Return the last checkpoint before a step at which all was well; None where there is none.

    Its steps all came before, and no loss was then higher than at the beginning: a rule may have
    fired only at the end of what went wrong.

    Args:
        run: in a directory; `tasks.lifecycle.checkpoints` says what counts as a checkpoint.
        since: the first step at which something was wrong.
    """
    losses = [column.of("train") for column in run.scalars("losses").values()]
    for one in saved_checkpoints(run.storage):
        if one.steps <= since and all(_not_risen(loss, one.steps) for loss in losses):
            return one
    return None


def _not_risen(loss: Column, steps: int) -> bool:
    """Say whether a loss was not higher after so many steps than at the beginning."""
    until = loss.values[loss.steps < steps]
    return not len(until) or bool(np.median(until[-_STEPS:]) <= np.median(until[:_STEPS]))
