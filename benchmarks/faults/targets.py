"""Targets in the form that a loss takes, and correctness of the outputs.

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
        y: class numbers int64 [B], or targets float32 [B, K].
        classes: number of classes; 0 for regression.
        loss: name of the loss, from `LOSSES`.
        outputs: K of the model. A single output receives the class number itself.

    Returns:
        int64 [B], or float32 [B, K].

    Raises:
        ConfigError: The loss takes classes, but there are none.
    """
    form = LOSSES[loss].targets
    if not classes:
        if form == "sparse":
            raise ConfigError(f"loss {loss}: takes class numbers, but the targets are numbers")
        return y
    if form == "sparse":
        return y
    if outputs == 1:
        dense = y[:, None].float()
    else:
        dense = torch.nn.functional.one_hot(y, max(outputs, classes))[:, :outputs].float()
    return 2 * dense - 1 if form == "signs" else dense


def correct(output: Tensor, y: Tensor, loss: str, classes: int) -> Tensor:
    """Return whether the prediction of each row is correct.

    Args:
        output: output of the model, [B, K].
        y: class numbers, int64 [B].
        loss: name of the loss, from `LOSSES`, which determines the decision boundary.
        classes: number of classes.

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
