"""A training whose large arrays are captured, and then read from its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vinedresser.capture import Hook, open_run
from vinedresser.store.collections.schedule import SaveConfig

__all__ = ["STEPS", "TENSOR", "trained", "train_and_read"]

STEPS, TENSOR = 3, "inputs/batch"
# Made before any allocation fails, and trained in place: 2 MiB.
_WEIGHTS = np.random.default_rng(0).standard_normal((256, 1024))


def trained(step: int) -> float:
    """Return the factor of the weights after a step."""
    return 0.5 ** (step + 1)


def train_and_read(folder: Path) -> dict[str, Any]:
    """Train through a hook and read the run; return the numbers and what was reported."""
    hook = Hook(
        folder,
        collections={"inputs": SaveConfig(every=1, tensor=True, reductions=("l2", "histogram"))},
    )
    numbers = []
    for _ in range(STEPS):
        np.multiply(_WEIGHTS, 0.5, out=_WEIGHTS)
        numbers.append(float(_WEIGHTS[0, 0]))
        hook.step(inputs=_WEIGHTS, loss=numbers[-1])
        hook.flush()
    hook.close()
    refused = []
    run = open_run(folder)
    for step in run.tensor(TENSOR).steps().tolist() if TENSOR in run.tensor_names() else ():
        try:
            run.tensor(TENSOR).value(step)
        except MemoryError as error:
            refused.append(str(error))
    return {"numbers": numbers, "problems": hook.problems, "refused": refused}
