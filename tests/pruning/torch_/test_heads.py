"""Heads of attention as vision transformers have it: one projection for queries, keys, values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.pruning.torch_.reference import random_weights, results
from tests.pruning.torch_.zoo_attention import EncoderBlock, ViT
from vinedresser.pruning import Pruned, prune
from vinedresser.pruning.torch_ import TorchPrunable

EXAMPLE = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(6)).double()


class Attention(nn.Module):
    """Attention of 4 heads with normalised queries and keys.

    Args:
        width: width of the tokens.
        fused: with `scaled_dot_product_attention`; else by hand.
        own_width: the result has the width of all heads, not that of the input.
    """

    def __init__(self, width: int, *, fused: bool, own_width: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim = 4, width // 4
        self.scale = self.head_dim**-0.5
        self.inner = width
        self.fused, self.own_width = fused, own_width
        self.qkv = nn.Linear(width, 3 * width)
        self.q_norm, self.k_norm = nn.LayerNorm(self.head_dim), nn.LayerNorm(self.head_dim)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Any:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.fused:
            p = self.dropout.p if self.training else 0.0
            x = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p)
        else:
            x = self.dropout((q * self.scale @ k.transpose(-2, -1)).softmax(-1)) @ v
        return self.out(x.transpose(1, 2).reshape(b, n, self.inner if self.own_width else c))


def transformer(*, fused: bool, own_width: bool) -> nn.Module:
    torch.manual_seed(0)
    blocks: list[nn.Module] = [
        EncoderBlock(16, Attention(16, fused=fused, own_width=own_width)) for _ in range(2)
    ]
    return random_weights(ViT(16, blocks), 1)


def without_heads(model: nn.Module, pruned: Pruned) -> list[Any]:
    """Return what a model computes if no output projection reads the removed heads."""
    state = model.state_dict()
    for name, heads in pruned.plans[0].channels.items():
        for head in heads:
            state[name.replace("qkv", "out.weight")][:, 4 * head : 4 * head + 4] = 0
    return results(model, EXAMPLE)


@pytest.mark.thorough
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "by hand"])
def test_whole_heads_go(fused: bool) -> None:
    model = transformer(fused=fused, own_width=True)
    pruned = prune(model, EXAMPLE, 3, kinds=("heads",))
    left = {}
    for number in (0, 1):
        attention: Any = pruned.model.get_submodule(f"blocks.{number}.attention")
        left[number] = attention.num_heads
        width = 4 * attention.num_heads
        assert attention.inner == width
        assert attention.head_dim == 4
        assert attention.qkv.weight.shape == (3 * width, 16)
        assert attention.out.weight.shape == (16, width)
    assert sum(left.values()) == 8 - 3
    (found,), (expected,) = results(pruned.model, EXAMPLE), without_heads(model, pruned)
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.thorough
def test_heads_stay_where_the_result_has_the_width_of_the_input() -> None:
    """With fewer heads, such code does not run."""
    prunable = TorchPrunable(transformer(fused=True, own_width=False), EXAMPLE)
    groups = {group.name: group for group in prunable.groups}
    for number in (0, 1):
        assert "the model does not run" in groups[f"blocks.{number}.attention.qkv"].locked
    assert not groups["blocks.0.mlp.0"].locked
