"""The functions of loss modules and functions that a script defines itself."""

from __future__ import annotations

from typing import Any

import torch

from vinedresser.capture.torch_.losses.losses import is_loss
from vinedresser.frameworks.torch_.losses.loss_graphs import loss_inputs
from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.nesting import leaves

# A loss compares predictions and labels.
_COMPARED = 2


def custom_function(value: Any, arguments: tuple[Any, ...]) -> dict[str, Any] | None:
    """Return the function that a custom loss applies to its arguments, for the run's record.

    Args:
        value: value of the loss, whose graph has not been freed by a backward pass.
        arguments: arguments of the loss, nestings of tensors.

    Returns:
        {} if it is unknown, or applied to something else; None if the value is no scalar with a
        gradient, as in evaluations.
    """
    if not is_loss(value):
        return None
    with WithoutModes():
        given = [one for argument in arguments for _, one in leaves(argument)][:_COMPARED]
        mark_outputs(given)
        found = loss_inputs(value) if len(given) == _COMPARED else None
        if found is None:
            return {}
        predictions, labels = given
        if found.function == "cross_entropy" and predictions.ndim and not found.activation:
            # As autograd saves them.
            predictions = predictions.detach().log_softmax(min(1, predictions.ndim - 1))
        same = (
            predictions.shape == found.predictions.shape
            and labels.shape == found.labels.shape
            and torch.allclose(predictions.to(found.predictions), found.predictions)
            and torch.allclose(labels.to(found.labels), found.labels)
        )
    return {"function": found.function} if same else {}
