"""Losses as users write them: modules, functions and formulas, and their faults.

Shape legend: N rows, C classes, K targets.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw

__all__ = [
    "BINARY_FAULTS",
    "CLASS_FAULTS",
    "VALUE_FAULTS",
    "Loss",
    "binary_loss",
    "class_loss",
    "value_loss",
]

Loss = Callable[[Tensor, Tensor], Tensor]

CLASS_FAULTS = (
    *("double_softmax", "softmax_wrong_axis", "relu_before_loss", "nll_on_probabilities"),
    *("wrong_loss", "loss_reduction"),
)
BINARY_FAULTS = ("sigmoid_before_logits", "relu_before_loss", "wrong_loss", "loss_reduction")
VALUE_FAULTS = ("wrong_broadcast", "relu_before_loss", "wrong_loss", "loss_reduction")


def class_loss(draw: Draw) -> Loss:
    """Return a loss of scores [N, C] and class numbers int64 [N]."""
    usual: list[Loss] = [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(label_smoothing=0.05),
        F.cross_entropy,
        _of_log_softmax,
        _by_formula,
    ]
    # Each of these faults goes with one way to write the loss.
    kind = draw.by_subject(
        {"double_softmax": draw.choice([0, 2]), "nll_on_probabilities": 3},
        draw.choice([0, 0, 1, 2, 2, 3, 4]),
    )
    if draw.has("nll_on_probabilities"):
        return draw.watch.loss(_of_probabilities)
    if draw.has("wrong_loss"):
        return draw.watch.loss(_distance_to_number)
    if draw.has("softmax_wrong_axis"):
        return draw.watch.loss(_over_rows)
    watched = draw.watch.loss(usual[kind])
    if draw.has("double_softmax"):
        return lambda output, y: watched(output.softmax(dim=1), y)
    return _spoilt(draw, watched)


def binary_loss(draw: Draw) -> Loss:
    """Return a loss of scores [N, K] and labels float32 [N, K] of 0 and 1."""
    usual: list[Loss] = [
        nn.BCEWithLogitsLoss(),
        F.binary_cross_entropy_with_logits,
        _binary_by_hand,
    ]
    core = draw.choice(usual)
    if draw.concerns("sigmoid_before_logits"):
        core = draw.choice(usual[:2])
    if draw.has("wrong_loss"):
        # A loss for classes that exclude each other.
        return draw.watch.loss(_exclusive)
    watched = draw.watch.loss(core)
    if draw.has("sigmoid_before_logits"):
        return lambda output, y: watched(output.sigmoid(), y)
    return _spoilt(draw, watched)


def value_loss(draw: Draw) -> Loss:
    """Return a loss of outputs and targets, both float32 [N, K]."""
    usual: list[Loss] = [nn.MSELoss(), nn.MSELoss(), F.mse_loss, nn.SmoothL1Loss(), _squares]
    core = draw.choice(usual)
    if draw.has("wrong_loss"):
        # The sign of the error is lost: nothing keeps the outputs from running away.
        return draw.watch.loss(_mean_error)
    watched = draw.watch.loss(core)
    if draw.has("wrong_broadcast"):
        # [N, 1] against [N] is [N, N].
        return lambda output, y: watched(output, y[:, 0])
    return _spoilt(draw, watched)


def _spoilt(draw: Draw, loss: Loss) -> Loss:
    """Return a loss with a fault that all kinds have in common, if there is one."""
    if draw.has("relu_before_loss"):
        return lambda output, y: loss(output.relu(), y)
    if draw.has("loss_reduction"):
        # As with reduction="sum", over more than the batch.
        size = draw.extent(100, 3000)
        return lambda output, y: loss(output, y) * size
    return loss


def _of_log_softmax(output: Tensor, y: Tensor) -> Tensor:
    return F.nll_loss(F.log_softmax(output, dim=1), y)


def _of_probabilities(output: Tensor, y: Tensor) -> Tensor:
    return F.nll_loss(F.softmax(output, dim=1), y)


def _over_rows(output: Tensor, y: Tensor) -> Tensor:
    return F.nll_loss(F.log_softmax(output, dim=0), y)


def _by_formula(output: Tensor, y: Tensor) -> Tensor:
    return (output.logsumexp(dim=1) - output.gather(1, y[:, None])[:, 0]).mean()


def _distance_to_number(output: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(output.mean(dim=1), y.float())


def _binary_by_hand(output: Tensor, y: Tensor) -> Tensor:
    return (F.softplus(output) - output * y).mean()


def _exclusive(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y[:, 0].long())


def _squares(output: Tensor, y: Tensor) -> Tensor:
    return torch.mean((output - y) ** 2)


def _mean_error(output: Tensor, y: Tensor) -> Tensor:
    return (output - y).mean()
