"""What a loss is given as targets, and which of the outputs are right.

Shape legend: B batch, K outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.faults.networks.losses import LOSSES
from vinedresser.errors import ConfigError

__all__ = ["correct", "targets"]


def targets(y: Tensor, classes: int, loss: str, outputs: int) -> Tensor:
    """Return the targets in the form that a loss takes.

    Args:
        y: int64 [B], class numbers, or float32 [B, K].
        classes: how many; 0: the targets are numbers.
        loss: one of `LOSSES`.
        outputs: K of the model. One output is given the class number itself.

    Returns:
        int64 [B], or float32 [B, K].

    Raises:
        ConfigError: the loss takes classes, and there are none.
    """
    form = LOSSES[loss].targets
    if not classes:
        if form == "sparse":
            raise ConfigError(f"loss {loss}: takes class numbers, and the targets are numbers")
        return y
    if form == "sparse":
        return y
    if outputs == 1:
        dense = y[:, None].float()
    else:
        dense = torch.nn.functional.one_hot(y, max(outputs, classes))[:, :outputs].float()
    return 2 * dense - 1 if form == "signs" else dense


def correct(output: Tensor, y: Tensor, loss: str, classes: int) -> Tensor:
    """Return for each row whether the prediction is right.

    Args:
        output: [B, K] of the model.
        y: int64 [B].
        loss: one of `LOSSES`; tells where the border between two classes lies.
        classes: how many.

    Returns:
        bool [B].
    """
    if output.ndim == 2 and output.shape[1] > 1:
        return output.argmax(dim=1) == y
    flat = output.reshape(len(output))
    if LOSSES[loss].outputs in ("logits", "scores"):
        return (flat > 0) == (y > 0)
    if classes > 2:
        return flat.round() == y
    return (flat > 0.5) == (y > 0)
