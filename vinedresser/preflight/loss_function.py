"""The loss function of a step: the capture tells what it compares, and the rules its formula."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.losses.loss_graphs import loss_inputs
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_identity import LossIdentity, identified

__all__ = ["LossFunction", "function_of"]

# Predictions of a larger batch are not computed again.
_MOST_ELEMENTS = 1 << 22


class LossFunction(NamedTuple):
    """The loss function whose mean over the rows of a batch is a loss.

    Attributes:
        identity: its formula.
        compared: its predictions and labels.
    """

    identity: LossIdentity
    compared: Compared


@torch.no_grad()
def function_of(loss: Tensor) -> LossFunction | None:
    """Return the function whose mean over the rows of the batch is a loss; None if unknown.

    Args:
        loss: loss [] with a gradient, whose graph has not been freed by a backward pass. The
            outputs of the model are marked (see `mark_outputs`).
    """
    with WithoutModes():
        found = loss_inputs(loss)
        if found is None or found.predictions.numel() > _MOST_ELEMENTS:
            return None
        labels = found.labels.double() if found.labels.is_floating_point() else found.labels
        given = labels.cpu().numpy(), found.predictions.double().cpu().numpy()
        compared = Compared.of("loss", *given)
        identity = compared and identified(found.function, compared, float(loss))
    return LossFunction(identity, compared) if compared and identity else None
