"""Losses by name: Keras's losses on probabilities, and those of torch.

Shape legend: B batch, K outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["LOSSES", "LossKind"]

# Keras's epsilon.
_SMALLEST = 1e-7


class BinaryCrossentropy(nn.Module):
    """Of probabilities [B, K] and labels [B, K] from 0 to 1, as in Keras."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over all."""
        p = output.clamp(_SMALLEST, 1 - _SMALLEST)
        return -(target * p.log() + (1 - target) * (1 - p).log()).mean()


class CategoricalCrossentropy(nn.Module):
    """Of probabilities [B, K], whose rows it normalises, and one-hot labels [B, K]."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over the batch."""
        return -(target * _log_shares(output)).sum(dim=-1).mean()


class SparseCategoricalCrossentropy(nn.Module):
    """Of probabilities [B, K], whose rows it normalises, and class numbers [B]."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over the batch."""
        return nn.functional.nll_loss(_log_shares(output), target)


class Hinge(nn.Module):
    """max(0, 1 - y x), of outputs [B, K] and labels [B, K] of -1 and 1."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over all."""
        return (1 - target * output).clamp(min=0).mean()


class SquaredHinge(nn.Module):
    """max(0, 1 - y x) squared."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over all."""
        return (1 - target * output).clamp(min=0).square().mean()


class CategoricalHinge(nn.Module):
    """max(0, 1 + greatest wrong output - right output), of [B, K] and one-hot labels."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over the batch."""
        right = (target * output).sum(dim=-1)
        wrong = ((1 - target) * output).amax(dim=-1)
        return (wrong - right + 1).clamp(min=0).mean()


class KLDivergence(nn.Module):
    """Sum of y ln(y / p) over [B, K], both clipped as in Keras."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over the batch."""
        y, p = target.clamp(_SMALLEST, 1), output.clamp(_SMALLEST, 1)
        return (y * (y / p).log()).sum(dim=-1).mean()


class LogCosh(nn.Module):
    """ln cosh(x - y)."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over all."""
        error = output - target
        return (error + nn.functional.softplus(-2 * error) - torch.log(torch.tensor(2.0))).mean()


class MeanAbsolutePercentageError(nn.Module):
    """100 abs(x - y) / abs(y), the denominator at least 1e-7."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over all."""
        return 100 * ((output - target).abs() / target.abs().clamp(min=_SMALLEST)).mean()


class MeanSquaredLogarithmicError(nn.Module):
    """(ln(1 + x) - ln(1 + y)) squared, both at least 1e-7."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over all."""
        clipped = (each.clamp(min=_SMALLEST) for each in (output, target))
        first, second = (torch.log1p(each) for each in clipped)
        return (first - second).square().mean()


class Poisson(nn.Module):
    """x - y ln(x), as in Keras."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean over all."""
        return (output - target * (output + _SMALLEST).log()).mean()


# The cases were made with Keras, whose losses are known by name.
for _own in (
    *(BinaryCrossentropy, CategoricalCrossentropy, SparseCategoricalCrossentropy),
    *(Hinge, SquaredHinge, CategoricalHinge, KLDivergence, LogCosh),
    *(MeanAbsolutePercentageError, MeanSquaredLogarithmicError, Poisson),
):
    _own.__module__ = "keras.losses"


def _log_shares(output: Tensor) -> Tensor:
    """Return the logarithm of rows that sum to one, clipped."""
    shares = output / output.sum(dim=-1, keepdim=True)
    return shares.clamp(_SMALLEST, 1 - _SMALLEST).log()


@dataclass(frozen=True)
class LossKind:
    """Constructor, targets and outputs of a loss.

    Attributes:
        make: returns the loss module.
        targets: "sparse" for class numbers [B]; "dense" for one number per output [B, K] (one-hot
            for classes); "signs" for the same with -1 instead of 0.
        outputs: interpretation of the outputs: "logits", "probabilities", "log_probabilities",
            "scores" or "values".
    """

    make: Callable[[], nn.Module]
    targets: str
    outputs: str


_BCE = LossKind(BinaryCrossentropy, "dense", "probabilities")
_CCE = LossKind(CategoricalCrossentropy, "dense", "probabilities")
_SPARSE = LossKind(SparseCategoricalCrossentropy, "sparse", "probabilities")
_LOGITS = LossKind(nn.CrossEntropyLoss, "sparse", "logits")
_BCE_LOGITS = LossKind(nn.BCEWithLogitsLoss, "dense", "logits")
_MSE = LossKind(nn.MSELoss, "dense", "values")
_MAE = LossKind(nn.L1Loss, "dense", "values")
_HUBER = LossKind(nn.HuberLoss, "dense", "values")
_KLD = LossKind(KLDivergence, "dense", "probabilities")

LOSSES: dict[str, LossKind] = {
    "bce": _BCE,
    "binary_crossentropy": _BCE,
    "bce_torch": LossKind(nn.BCELoss, "dense", "probabilities"),
    "cce": _CCE,
    "categorical_crossentropy": _CCE,
    "sparse_cce_probs": _SPARSE,
    "sparse_cce": _SPARSE,
    "sparse_categorical_crossentropy": _SPARSE,
    "ce_logits": _LOGITS,
    "sparse_cce_logits": _LOGITS,
    "cross_entropy": _LOGITS,
    "ce_logits_sum": LossKind(lambda: nn.CrossEntropyLoss(reduction="sum"), "sparse", "logits"),
    "cce_logits": LossKind(nn.CrossEntropyLoss, "dense", "logits"),
    "bce_logits": _BCE_LOGITS,
    "bce_logits_sum": LossKind(lambda: nn.BCEWithLogitsLoss(reduction="sum"), "dense", "logits"),
    "nll": LossKind(nn.NLLLoss, "sparse", "log_probabilities"),
    "mse": _MSE,
    "mean_squared_error": _MSE,
    "mse_sum": LossKind(lambda: nn.MSELoss(reduction="sum"), "dense", "values"),
    "mae": _MAE,
    "l1": _MAE,
    "mean_absolute_error": _MAE,
    "huber": _HUBER,
    "smooth_l1": LossKind(nn.SmoothL1Loss, "dense", "values"),
    "log_cosh": LossKind(LogCosh, "dense", "values"),
    "mape": LossKind(MeanAbsolutePercentageError, "dense", "values"),
    "msle": LossKind(MeanSquaredLogarithmicError, "dense", "values"),
    "poisson": LossKind(Poisson, "dense", "values"),
    "hinge": LossKind(Hinge, "signs", "scores"),
    "squared_hinge": LossKind(SquaredHinge, "signs", "scores"),
    "categorical_hinge": LossKind(CategoricalHinge, "dense", "scores"),
    "multi_margin": LossKind(nn.MultiMarginLoss, "sparse", "scores"),
    "kld": _KLD,
    "kl_divergence": _KLD,
}
