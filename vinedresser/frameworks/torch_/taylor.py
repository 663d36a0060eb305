"""First-order Taylor terms of a loss."""

from __future__ import annotations

from torch import Tensor


def taylor_terms(value: Tensor, gradient: Tensor, *, last: bool) -> Tensor:
    """Return the mean over space of activation times gradient.

    Molchanov et al., Pruning Convolutional Neural Networks for Resource Efficient Inference, ICLR
    2017, equation 7 before the absolute value.

    Args:
        value: activation, [batch, channels, ...].
        gradient: gradient of the loss with respect to it, of the same shape.
        last: channels are the last axis instead, [batch, ..., channels].

    Returns:
        [batch, channels], or the product itself if it has at most two axes.
    """
    product = value * gradient
    if product.dim() <= 2:
        return product
    return product.flatten(1, -2).mean(1) if last else product.flatten(2).mean(2)
