"""The inputs of a recorded step of Keras, and selections of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vinedresser.frameworks.keras_.codec import mapped
from vinedresser.frameworks.nesting import leaves

__all__ = ["KerasBatch", "arrays", "batch_size", "selected"]


@dataclass(frozen=True)
class KerasBatch:
    """The inputs of a step of ``fit``, or of one call of the model in a custom loop.

    Attributes:
        args: positional arguments of the model.
        kwargs: keyword arguments of the model.
        loss_args: arguments of the loss; predictions, which a replay computes, are `Computed`.
        data: the batch as ``train_step`` takes it; None in a custom loop.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    loss_args: tuple[Any, ...] = ()
    data: Any = None

    @property
    def content(self) -> dict[str, Any]:
        """All inputs by name."""
        given = {"input": (self.args, self.kwargs), "loss": self.loss_args, "data": self.data}
        return {name: one for name, one in given.items() if one is not None}


def arrays(batch: KerasBatch) -> list[tuple[str, Any]]:
    """Return name and array of each tensor of a batch."""
    return [
        found
        for word, value in batch.content.items()
        for found in leaves(value, word, lambda one: isinstance(one, np.ndarray))
    ]


def batch_size(batch: KerasBatch) -> int:
    """Return the number of samples: the first dimension of the first array; 0 if unknown."""
    return next((len(one) for _, one in arrays(batch) if one.ndim), 0)


def selected(batch: KerasBatch, rows: Sequence[int]) -> KerasBatch:
    """Return a batch with some of its samples.

    Args:
        rows: indices of the samples, at least one.
    """
    size = batch_size(batch)

    def chosen(array: Any) -> Any:
        return array[list(rows)] if array.ndim and len(array) == size else array

    return KerasBatch(
        *(mapped(one, chosen) for one in (batch.args, batch.kwargs, batch.loss_args, batch.data))
    )
