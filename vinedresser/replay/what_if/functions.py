"""The functions of torch between layers, and those that compare outputs with targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["ACTIVATIONS", "DETACHING", "LAYERS", "LOSSES", "PRODUCTS"]


def _forms(*names: str) -> dict[Callable[..., Any], str]:
    """Return functions by name: those of torch, of its module of functions and of tensors."""
    return {
        getattr(where, name): name
        for name in names
        for where in (torch, functional, Tensor)
        if callable(getattr(where, name, None))
    }


ACTIVATIONS: Mapping[Callable[..., Any], str] = _forms(
    *("relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "softplus", "softsign"),
    *("sigmoid", "tanh", "hardtanh", "hardsigmoid", "exp", "softmax", "log_softmax", "logsigmoid"),
)
"""Activations and their names."""

LAYERS: frozenset[Callable[..., Any]] = frozenset(
    {
        *_forms("linear", "bilinear", "conv1d", "conv2d", "conv3d", "matmul", "mm", "addmm"),
        *_forms("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "lstm", "gru"),
        *_forms("rnn_tanh", "rnn_relu"),
        *(Tensor.__matmul__, Tensor.__rmatmul__),
    }
)
"""Functions that compute linear combinations with weights."""

PRODUCTS: frozenset[Callable[..., Any]] = frozenset(
    {*_forms("mul", "multiply", "div"), Tensor.__mul__, Tensor.__rmul__, Tensor.__truediv__}
)
"""Products and quotients of entries: what a factor is computed by is a gate, or a part of one."""

DETACHING: frozenset[Callable[..., Any]] = frozenset(_forms("detach"))
"""Functions that cut the graph."""

LOSSES: Mapping[Callable[..., Any], str] = _forms(
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    *("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
    *("kl_div", "poisson_nll_loss"),
)
"""Losses and their names."""
