"""Recognizing a loss that a script computes by hand, by its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from vinedresser.preflight.observed import Compared

__all__ = ["recognized"]

# Relative difference that rounding explains, such as that of logarithms of clamped probabilities.
_ROUNDING = 1e-5
_LEAST_SAMPLES = 4
# Tensors that are tried, and their size.
_MOST, _MOST_ELEMENTS = 12, 1 << 20
_ELEMENTWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
}


@torch.no_grad()
def recognized(
    loss: Tensor, outputs: Sequence[Tensor], targets: Sequence[Tensor]
) -> Compared | None:
    """Return the loss function of torch whose mean over a batch has the value of a loss.

    Args:
        loss: the loss [].
        outputs: what the script computes with a model, the model's own outputs first.
        targets: other tensors from which it computes the loss.

    Returns:
        The function, with integer labels of classes; None if there is none, or more than one.
    """
    value = float(loss)
    if not math.isfinite(value):
        return None
    for output in outputs[:_MOST]:
        for target in targets[:_MOST]:
            if output.dim() and target.numel() >= _LEAST_SAMPLES and _small(output, target):
                found = [
                    (name, first, second)
                    for name, mean, first, second in _candidates(output.detach(), target.detach())
                    if math.isclose(mean, value, rel_tol=_ROUNDING)
                ]
                if len(found) == 1:
                    name, first, second = found[0]
                    origin = type(output.grad_fn).__name__
                    return Compared(name, first, second, True, loss.detach(), True, origin)
    return None


def _candidates(output: Tensor, target: Tensor) -> Iterator[tuple[str, float, Tensor, Tensor]]:
    """Yield name, value and arguments of each function that can compare two tensors."""
    if output.shape == target.shape and output.numel() > 1:
        wide = target.to(output.dtype)
        for name, function in _ELEMENTWISE.items():
            yield name, float(function(output, wide)), output, wide
        if float(output.min()) > 0 and float(output.max()) < 1:
            entropy = -(wide * output.log() + (1 - wide) * (1 - output).log())
            yield "binary_cross_entropy", float(entropy.mean()), output, wide
    labels = _classes(output, target)
    if labels is None:
        return
    yield "cross_entropy", float(F.cross_entropy(output, labels)), output, labels
    logarithms = output.log() if float(output.min()) > 0 else output
    if float((logarithms.exp().sum(1) - 1).abs().max()) < 1e-3:
        yield "nll_loss", float(F.nll_loss(logarithms, labels)), logarithms, labels


def _classes(output: Tensor, target: Tensor) -> Tensor | None:
    """Return the labels [rows] of scores [rows, classes]; None if a target has none."""
    if output.dim() != 2 or output.shape[1] < 2 or len(target) != len(output):
        return None
    if target.shape == output.shape:
        one_hot = (target.sum(1) == 1).all() and ((target == 0) | (target == 1)).all()
        return target.argmax(1) if one_hot else None
    flat = target.reshape(-1)
    whole = len(flat) == len(output) and bool((flat == flat.floor()).all())
    inside = whole and float(flat.min()) >= 0 and float(flat.max()) < output.shape[1]
    return flat.long() if inside else None


def _small(*tensors: Tensor) -> bool:
    return all(one.numel() <= _MOST_ELEMENTS and not one.is_complex() for one in tensors)
