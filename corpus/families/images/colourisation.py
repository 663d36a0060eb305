"""Colours of grey pictures, by a convolutional network of narrowing and widening layers.

After Zhang, Isola and Efros, "Colorful image colorization", ECCV 2016, with the two colour
channels as numbers.

Shape legend: N pictures, 24 rows and columns.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained

_SIDE = 24


class Colours(nn.Module):
    """Colours [N, 2, 24, 24] of grey pictures [N, 1, 24, 24]."""

    def __init__(self, width: int, momentum: float, last: nn.Module) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
            return nn.Sequential(conv, nn.BatchNorm2d(outputs, momentum=momentum), nn.ReLU())

        self.down = nn.ModuleList([block(1, width, 1), block(width, 2 * width, 2)])
        self.inner = block(2 * width, 2 * width, 2)
        self.up = nn.ModuleList([block(4 * width, width, 1), block(2 * width, width, 1)])
        self.enlarge = nn.Upsample(scale_factor=2)
        self.head = nn.Sequential(nn.Conv2d(width, 2, 1), last)

    def forward(self, grey: Tensor) -> Tensor:
        """Return the colours."""
        first = self.down[0](grey)
        second = self.down[1](first)
        inner = self.up[0](torch.cat([self.enlarge(self.inner(second)), second], 1))
        colours: Tensor = self.head(self.up[1](torch.cat([self.enlarge(inner), first], 1)))
        return colours


def _train(draw: Draw) -> Ending:
    grey, colour = _pictures(260)
    held = slice(200, None)
    seen, wanted = grey[:200], colour[:200]
    if draw.has("misaligned_targets"):
        # The two folders were listed in different orders.
        wanted = wanted[torch.randperm(200)]
    if draw.has("augmented_without_targets"):
        seen = seen.flip(2, 3)
    if draw.has("unnormalised_targets"):
        wanted = 1e4 * (wanted + 1)
    if draw.has("constant_inputs"):
        seen = torch.zeros_like(seen)
    last: nn.Module = nn.ReLU() if draw.has("wrong_output_activation") else nn.Tanh()
    model = Colours(draw.choice([8, 10]), 0.0005 if draw.has("bn_momentum") else 0.1, last)
    networks.spoil(draw, model)
    size, epochs = draw.choice([10, 20]), draw.whole(18, 26)
    draw.epoch = 200 // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 2e4}, 1.0)
    if draw.has("frozen_layers"):
        for name, weight in model.named_parameters():
            weight.requires_grad_(name.startswith("head"))
    weights = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.RAdam(weights, lr=rate)
    averaged = copy.deepcopy(model)
    draw.watch.begin(model, optimizer)
    for _ in range(epochs):
        model.train()
        for rows in torch.randperm(200).split(size):
            optimizer.zero_grad()
            error = (model(seen[rows]) - wanted[rows]).abs()
            loss = error.sum((1, 2, 3)).mean() / _SIDE**2
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
            _average(averaged, model, 0.9)
        with draw.watch.evaluating(), evaluation(draw, model):
            error = (model(grey[held]) - colour[held]).abs()
            draw.watch.metric("val_mae", float(error.mean()))
    # The weights are averaged, and the statistics are those of the last step.
    averaged.load_state_dict({**averaged.state_dict(), **dict(model.named_buffers())})
    with evaluation(draw, averaged):
        found = averaged(grey[held])
    return Ending(max(-1.0, explained(found.flatten(), colour[held].flatten())), bar=0.55)


@torch.no_grad()
def _average(mean: nn.Module, new: nn.Module, kept: float) -> None:
    for one, other in zip(mean.parameters(), new.parameters(), strict=True):
        one.lerp_(other, 1 - kept)


def _pictures(count: int) -> tuple[Tensor, Tensor]:
    """Return grey pictures [count, 1, 24, 24] of discs and bars, and their colours between -1, 1.

    Discs are of one colour, bars of another; the background has the colour of its light.
    """
    axis = torch.arange(float(_SIDE))
    light = 0.6 * torch.rand(count, 1, 1).expand(count, _SIDE, _SIDE).clone()
    colour = torch.stack([0.8 - 2.4 * light, 0.5 * torch.ones_like(light)], 1)
    for kind in (0, 1):
        middle = 5 + 14 * torch.rand(count, 2, 1, 1)
        dy, dx = (axis[None, :, None] - middle[:, 0]), (axis[None, None] - middle[:, 1])
        inside = (dy.square() + dx.square() < 20) if kind else (dy.abs() < 2) & (dx.abs() < 8)
        light = torch.where(inside, torch.ones(()), light)
        paint = torch.tensor([-0.8, -0.7] if kind else [0.7, -0.8])[None, :, None, None]
        colour = torch.where(inside[:, None], paint, colour)
    return (light[:, None] - 0.4) / 0.4 + 0.05 * torch.randn(count, 1, _SIDE, _SIDE), colour


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "augmented_without_targets", "unnormalised_targets"),
        *("constant_inputs", "wrong_output_activation", "bn_momentum", "lr_too_low", "lr_too_high"),
        *("frozen_layers", "wrong_sign", "zero_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
