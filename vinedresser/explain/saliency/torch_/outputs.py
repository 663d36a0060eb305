"""Outputs of a model, and those of them that are explained."""

from __future__ import annotations

from typing import Any

import torch

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.targets import Targets, checked_targets
from vinedresser.explain.saliency.torch_.entry import PRECISIONS

__all__ = ["as_table", "chosen_targets"]


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


def chosen_targets(table: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Return the target of each example, int64 [batch].

    Args:
        table: the model's outputs, [batch, outputs].
        targets: what to explain.

    Raises:
        SaliencyError: they are not valid indices.
    """
    given = targets.cpu() if isinstance(targets, torch.Tensor) else targets
    chosen = checked_targets(given, *table.shape)
    if chosen is None:
        return table.detach().argmax(1)
    return torch.tensor(chosen, device=table.device)
