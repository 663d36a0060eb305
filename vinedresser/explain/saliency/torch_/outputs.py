"""Outputs of a model, and those of them that are explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.torch_.entry import PRECISIONS

__all__ = ["Targets", "as_table", "chosen_targets", "target_of_each"]

# Index of the output to explain, of all examples or one each; None for the largest.
Targets = int | Sequence[int] | None


def as_table(output: Any, batch: int) -> torch.Tensor:
    """Return a model's output as [batch, outputs].

    Raises:
        SaliencyError: it is something else.
    """
    if not isinstance(output, torch.Tensor):
        raise SaliencyError(
            f"the model returns {type(output).__name__}; it must return a tensor [batch, outputs]"
        )
    if output.ndim not in (1, 2) or len(output) != batch or output.dtype not in PRECISIONS:
        raise SaliencyError(
            f"the model returns {output.dtype} {list(output.shape)}; it must return float32 or "
            f"float64 [{batch}, outputs]"
        )
    return output if output.ndim == 2 else output.unsqueeze(1)


def target_of_each(targets: Targets, batch: int) -> Sequence[int | None]:
    """Return the target of each example."""
    if targets is None or isinstance(targets, int):
        return [targets] * batch
    return targets


def chosen_targets(table: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Return the target of each example, int64 [batch].

    Args:
        table: the model's outputs, [batch, outputs].
        targets: what to explain.

    Raises:
        SaliencyError: they are not valid indices.
    """
    batch, count = table.shape
    if targets is None:
        return table.detach().argmax(1)
    chosen = torch.as_tensor(targets, device=table.device)
    if chosen.is_floating_point() or chosen.dtype == torch.bool:
        raise SaliencyError(f"targets are {chosen.dtype}; they must be integers")
    if chosen.ndim > 1 or (chosen.ndim == 1 and len(chosen) != batch):
        raise SaliencyError(
            f"targets have the shape {list(chosen.shape)}; they must be one index, or one for each "
            f"of the {batch} examples"
        )
    if ((chosen < 0) | (chosen >= count)).any():
        raise SaliencyError(f"targets must be between 0 and {count - 1}, the model's outputs")
    return chosen.long().expand(batch)
