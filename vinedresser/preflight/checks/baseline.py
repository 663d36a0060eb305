"""The loss of a model that does not look at its inputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vinedresser.preflight.observed import Compared, Observed

__all__ = ["chance_loss", "constant_loss", "first_loss_function", "is_binary"]

_SQUARED = ("mse_loss",)
_ABSOLUTE = ("l1_loss",)
_CLASSES = ("cross_entropy", "nll_loss")
_BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")


def first_loss_function(seen: Observed) -> Compared | None:
    """Return the loss function of the first step if it is all of the loss; None otherwise."""
    found = seen.steps[0].compared if seen.steps else []
    return found[0] if len(found) == 1 and found[0].is_loss and found[0].plain else None


def chance_loss(one: Compared) -> float | None:
    """Return the loss of equal probabilities for all classes; None for other losses."""
    if one.name in _CLASSES and one.output.dim() > 1:
        return math.log(one.output.shape[1])
    return math.log(2) if one.name in _BINARY and is_binary(one.target) else None


def constant_loss(one: Compared) -> float | None:
    """Return the least loss of outputs that are the same for all samples; None if unknown.

    The entropy of the labels, or the variance of the targets.
    """
    target = one.target
    if one.name in _CLASSES and not target.is_floating_point():
        share = torch.bincount(target.reshape(-1)[target.reshape(-1) >= 0]).double()
        share = share[share > 0] / share.sum()
        return float(-(share * share.log()).sum())
    if target.is_floating_point() and target.shape == one.output.shape and target.dim():
        wide = target.double()
        if one.name in _BINARY:
            share = wide.mean(0)
            return float(-(_product(share) + _product(1 - share)).mean())
        if one.name in _SQUARED:
            return float((wide - wide.mean(0)).square().mean())
        if one.name in _ABSOLUTE:
            return float((wide - wide.median(0).values).abs().mean())
    return None


def is_binary(target: Tensor) -> bool:
    """Return whether all targets are 0 or 1."""
    return bool(((target == 0) | (target == 1)).all())


def _product(share: Tensor) -> Tensor:
    return torch.where(share > 0, share * share.clamp(min=1e-300).log(), 0.0)
