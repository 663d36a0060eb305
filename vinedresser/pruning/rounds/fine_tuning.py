"""The model of a round, in a script that fine-tunes it: ``train = ["python", "finetune.py"]``.

    from vinedresser.pruning import fine_tuning

    model = fine_tuning.load(build)
    ...                                 # train it
    fine_tuning.save(model)

The command of the table ``[prune]`` starts the script in each round. Only weights are passed
between the processes, and no objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from vinedresser.errors import PruningError
from vinedresser.pruning import saving
from vinedresser.pruning.backends import backend_of
from vinedresser.pruning.folders import PRUNED, TUNED, TUNING, round_folder

__all__ = ["ROUND_VARIABLE", "load", "load_teacher", "save"]

Model = TypeVar("Model")

# The variable with the folder of the round.
ROUND_VARIABLE = "VINEDRESSER_ROUND"


def load(build: Callable[[], Model]) -> Model:
    """Return the pruned model of the round, as it is before fine-tuning.

    Args:
        build: returns the unpruned model, with any weights.

    Raises:
        PruningError: no round has started this script, or `build` makes another architecture.
    """
    return saving.load(_round() / PRUNED, build)


def load_teacher(build: Callable[[], Model]) -> Model:
    """Return the unpruned model with its trained weights, for knowledge distillation.

    Args:
        build: returns the unpruned model, with any weights.

    Raises:
        PruningError: see `load`.
    """
    return saving.load(round_folder(_round().parent.parent, 0) / TUNED, build)


def save(model: Any) -> None:
    """Save the fine-tuned model as the result of the script, instead of one saved before.

    The round takes it once the script has ended with exit code 0, and refuses another architecture
    and weights that are not finite. Of a distributed training, only one process may call this.

    Args:
        model: the model of `load`, not a wrapper of it.

    Raises:
        PruningError: no round has started this script, or it is not a model.
        OSError: the file cannot be written.
    """
    backend_of(model).write_weights(model, _round() / TUNING / saving.WEIGHTS)


def _round() -> Path:
    """Return the folder of the round for which this script was started."""
    folder = os.environ.get(ROUND_VARIABLE)
    if not folder:
        raise PruningError(
            f"{ROUND_VARIABLE} is not set: `vinedresser prune` starts this script, as prune.train"
        )
    return Path(folder)
