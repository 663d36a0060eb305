"""Trials of removals: their random weights, and when float64 decides."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vinedresser.pruning.torch_ import TorchPrunable
from vinedresser.pruning.torch_.running import redraw


def test_random_weights_tell_all_channels_apart() -> None:
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        convolution, norm = nn.Conv2d(64, 512, 3), nn.BatchNorm2d(512)
        redraw(nn.Sequential(convolution, norm))
        drawn.append(convolution.weight.detach())
        assert norm.running_var is not None
        assert 0.5 <= norm.running_var.min() <= norm.running_var.max() <= 1.5
    weight = drawn[0]
    bound = (6 / 576) ** 0.5
    assert torch.equal(weight, drawn[1])
    assert weight.abs().max() <= bound
    assert abs(weight.std().item() - bound / 3**0.5) < 0.01 * bound
    for channels in (weight.flatten(1), weight.transpose(0, 1).flatten(1)):
        assert len(channels.unique(dim=0)) == len(channels)


class _Coarse(nn.Module):
    """Multiplies rounding errors by 1000, to more than a trial in float32 allows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3)
        self.second = nn.Conv2d(64, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.second(self.first(x))
        return (1e3 * made).sin()


def test_what_float32_rounds_too_coarsely_is_decided_in_float64() -> None:
    torch.manual_seed(0)
    groups = TorchPrunable(_Coarse(), torch.randn(2, 3, 6, 6)).groups
    assert {group.name: group.locked for group in groups}["first"] == ""
