"""Outputs that are explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import SaliencyError

__all__ = ["Targets", "checked_targets", "target_of_each"]

# Index of the output to explain, of all examples or one each; None for the largest.
Targets = int | Sequence[int] | None


def target_of_each(targets: Targets, batch: int) -> Sequence[int | None]:
    """Return the target of each example."""
    if targets is None or isinstance(targets, int):
        return [targets] * batch
    return targets


def checked_targets(targets: Any, batch: int, count: int) -> NDArray[np.int64] | None:
    """Return the target of each example, int64 [batch]; None for the largest outputs.

    Args:
        count: number of the model's outputs.

    Raises:
        SaliencyError: they are not valid indices.
    """
    if targets is None:
        return None
    chosen = np.asarray(targets)
    if chosen.dtype.kind not in "iu":
        raise SaliencyError(f"targets are {chosen.dtype}; they must be integers")
    if chosen.ndim > 1 or (chosen.ndim == 1 and len(chosen) != batch):
        raise SaliencyError(
            f"targets have the shape {list(chosen.shape)}; they must be one index, or one for each "
            f"of the {batch} examples"
        )
    if ((chosen < 0) | (chosen >= count)).any():
        raise SaliencyError(f"targets must be between 0 and {count - 1}, the model's outputs")
    return np.broadcast_to(chosen.astype(np.int64), (batch,))
