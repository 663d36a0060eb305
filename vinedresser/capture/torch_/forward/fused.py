"""Which modules torch runs in one piece when a model is evaluated."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

__all__ = ["fused_modules"]

_LAYERS = (nn.TransformerEncoderLayer, nn.MultiheadAttention)


def fused_modules(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return those transformer layers and attentions that may take torch's fast path now.

    It is another kernel, whose result differs in the last bits, and at padded places in more. Torch
    takes it only where no module of the layer has a hook, and nobody looks at the functions.
    """
    if not torch.backends.mha.get_fastpath_enabled():
        return []
    return [module for module in modules if isinstance(module, _LAYERS) and _is_fused(module)]


def _is_fused(module: nn.TransformerEncoderLayer | nn.MultiheadAttention) -> bool:
    """Return whether all that does not depend on the input allows for the fast path."""
    attention = module if isinstance(module, nn.MultiheadAttention) else module.self_attn
    assert isinstance(attention, nn.MultiheadAttention)
    return (
        not module.training
        and attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and not (torch.is_grad_enabled() and any(one.requires_grad for one in module.parameters()))
    )
