"""The inputs of a recorded step, and selections of their samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from vinedresser.frameworks import nesting
from vinedresser.frameworks.torch_.nesting import leaves

__all__ = ["Batch", "batch_size", "mapped", "selected"]


@dataclass(frozen=True)
class Batch:
    """The inputs of one call of the model.

    Attributes:
        args: positional arguments of the model.
        kwargs: keyword arguments of the model.
        loss_args: arguments of the loss; predictions, which a replay computes, are `Computed`.
        loaded: the batch that a data loader returned; None if there was none.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss_args: tuple[Any, ...]
    loaded: Any


def batch_size(batch: Batch) -> int:
    """Return the number of samples: the first dimension of the first tensor; 0 if unknown."""
    if any(isinstance(one, PackedSequence) for one in (*batch.args, *batch.kwargs.values())):
        return 0
    tensors = (one for _, one in leaves((batch.args, batch.kwargs, batch.loaded)))
    return next((tensor.shape[0] for tensor in tensors if tensor.dim()), 0)


def selected(batch: Batch, rows: Sequence[int]) -> Batch:
    """Return a batch with some of its samples.

    Args:
        rows: indices of the samples, at least one.
    """
    size, chosen = batch_size(batch), list(rows)

    def choose(value: Any) -> Any:
        if isinstance(value, torch.Tensor | np.ndarray):
            return value[chosen] if value.ndim and value.shape[0] == size else value
        if (
            isinstance(value, list)
            and len(value) == size
            and not any(isinstance(one, torch.Tensor) for one in value)
        ):
            # Such as texts, one for each sample.
            return [value[row] for row in chosen]
        return value

    return mapped(batch, choose)


def mapped(batch: Batch, change: Callable[[Any], Any]) -> Batch:
    """Return a batch with other values.

    Args:
        change: called with each value, outermost first; the parts of a value that it returns as
            it is are changed in turn.
    """
    fields = (batch.args, batch.kwargs, batch.loss_args, batch.loaded)
    return Batch(*(nesting.mapped(field, change) for field in fields))
