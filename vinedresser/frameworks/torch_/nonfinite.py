"""Finding gradients that are not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["all_finite", "gradients_of", "nonfinite_entries", "scaler_decides"]


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the gradients that an optimizer is about to consume, in the order of its groups."""
    return [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]


def scaler_decides(optimizer: Optimizer) -> bool:
    """Return whether a `GradScaler` lets a fused optimizer skip steps that overflow.

    It has then looked for infinities itself, and the gradients are still scaled.
    """
    return getattr(optimizer, "found_inf", None) is not None


def all_finite(gradients: Iterable[Tensor]) -> bool:
    """Return whether all entries are finite; rarely False although they are.

    Sums, or one norm, of the gradients, which overflow if they are very large.

    Args:
        gradients: of any shapes and dtypes, dense or sparse, on any devices.
    """
    given = list(gradients)
    for one in given:
        usual = type(one) is Tensor and one.dtype is torch.float32 and one.is_cpu
        if not usual or one.layout is not torch.strided:
            # On a GPU, one kernel and one wait for all of them.
            return _norm_is_finite(given)
        # On a CPU, half the time of the norm: a NaN or an infinity stays one in a sum.
        if not math.isfinite(one.sum().item()):
            return False
    return True


def _norm_is_finite(gradients: Iterable[Tensor]) -> bool:
    dense = [_entries(gradient) for gradient in gradients]
    dense = [one for one in dense if one.numel()]
    if not dense:
        return True
    norms = torch._foreach_norm(dense)
    kinds = {(norm.device, norm.dtype) for norm in norms}
    if len(kinds) > 1:
        host = [float(norm) for norm in norms]
        return all(map(math.isfinite, host))
    # A sum, not all(isfinite): three times as fast.
    return math.isfinite(torch.stack(norms).sum().item())


def nonfinite_entries(gradient: Tensor) -> int:
    """Return the number of entries that are NaN or infinite."""
    entries = _entries(gradient)
    return int((~torch.isfinite(entries)).sum().item())


def _entries(gradient: Tensor) -> Tensor:
    """Return the stored entries of a gradient: this rank's shard, or the values of a sparse one."""
    if hasattr(gradient, "to_local"):
        gradient = gradient.to_local()
    return gradient._values() if gradient.is_sparse else gradient
