"""The modules for which torch uses a fused kernel in evaluations."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

__all__ = ["fused_modules"]

_LAYERS = (nn.TransformerEncoderLayer, nn.MultiheadAttention)


def fused_modules(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the transformer layers and attentions that may use torch's fast path now.

    The results of its kernel differ in the last bits, and more at padded positions. Torch uses it
    only if no module of the layer has a hook and no function mode is active.
    """
    if not torch.backends.mha.get_fastpath_enabled():
        return []
    return [module for module in modules if isinstance(module, _LAYERS) and _is_fused(module)]


def _is_fused(module: nn.TransformerEncoderLayer | nn.MultiheadAttention) -> bool:
    """Return whether the conditions of the fast path are met that do not depend on the input."""
    attention = module if isinstance(module, nn.MultiheadAttention) else module.self_attn
    assert isinstance(attention, nn.MultiheadAttention)
    return (
        not module.training
        and attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and not (torch.is_grad_enabled() and any(one.requires_grad for one in module.parameters()))
    )
