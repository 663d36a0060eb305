"""The last checkpoint of a run that was saved before something went wrong in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vinedresser.capture.store.reader import Run
from vinedresser.capture.store.series import Column

__all__ = ["Checkpoint", "healthy_checkpoint"]

_FOLDER = "checkpoints"
# As the hook calls them; a user's own may have any ending, and be a folder.
_NAME = re.compile(r"step-(\d+)")
# A loss is taken as the median of so many steps.
_STEPS = 5


class Checkpoint(NamedTuple):
    """A saved model.

    Attributes:
        key: in the run directory.
        path: absolute.
        steps: optimizer steps of the run that were done then.
    """

    key: str
    path: Path
    steps: int


def healthy_checkpoint(run: Run, since: int) -> Checkpoint | None:
    """Return the last checkpoint before a step at which all was well; None where there is none.

    Its steps all came before, and no loss was then higher than at the beginning: a rule may have
    fired only at the end of what went wrong.

    Of a training that saves several files at a time, such as one per rank, none can be named.

    Args:
        run: in a directory; ``checkpoints/step-<steps>`` and any ending are its checkpoints.
        since: the first step at which something was wrong.
    """
    before = [one for one in _checkpoints(Path(run.path)) if 0 < one.steps <= since]
    files = Counter(one.steps for one in before)
    losses = [column.of("train") for column in run.scalars("losses").values()]
    for one in sorted(before, key=lambda one: one.steps, reverse=True):
        if files[one.steps] == 1 and all(_not_risen(loss, one.steps) for loss in losses):
            return one
    return None


def _checkpoints(directory: Path) -> Iterator[Checkpoint]:
    """Yield those that have a step in their name."""
    folder = (directory / _FOLDER).absolute()
    for path in folder.iterdir() if folder.is_dir() else ():
        if name := _NAME.match(path.name):
            yield Checkpoint(f"{_FOLDER}/{path.name}", path, int(name[1]))


def _not_risen(loss: Column, steps: int) -> bool:
    """Say whether a loss was not higher after so many steps than at the beginning."""
    until = loss.values[loss.steps < steps]
    return not len(until) or bool(np.median(until[-_STEPS:]) <= np.median(until[:_STEPS]))
