"""A picture as a function of its coordinates, by layers of sines.

After Sitzmann et al., "Implicit neural representations with periodic activation functions",
NeurIPS 2020.

Shape legend: N pixels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_SIDE = 40


class Sine(nn.Module):
    """A dense layer and the sine of its outputs."""

    def __init__(self, inputs: int, outputs: int, frequency: float, *, first: bool) -> None:
        super().__init__()
        self.linear, self.frequency = nn.Linear(inputs, outputs), frequency
        bound = 1 / inputs if first else math.sqrt(6 / inputs) / frequency
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs."""
        return torch.sin(self.frequency * self.linear(x))


def _train(draw: Draw) -> Ending:
    places, light = _picture(draw)
    # Every third pixel is held out.
    held = torch.arange(len(places)) % 3 == 1
    seen, known = places[~held], light[~held]
    if draw.has("misaligned_targets"):
        known = known[torch.randperm(len(known))]
    if draw.has("unnormalised_targets"):
        known = 3e3 * known + 2e4
    inside, width = places[held], draw.choice([48, 64])
    if draw.has("unnormalised_inputs"):
        # The numbers of rows and columns of a scan, and not places between -1 and 1.
        seen, inside = 2000 * (seen + 1), 2000 * (inside + 1)
    frequency = draw.between(8, 12)
    layers: list[nn.Module] = [
        Sine(2, width, frequency, first=True),
        *(Sine(width, width, frequency, first=False) for _ in range(draw.choice([1, 2]))),
        nn.Linear(width, 1),
    ]
    if draw.has("wrong_output_activation"):
        # The light is as often below zero as above.
        layers.append(nn.ReLU())
    model = nn.Sequential(*layers)
    networks.spoil(draw, model)
    steps, size = draw.steps(700, 1300), draw.choice([128, 256])
    rate = draw.between(1e-3, 3e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-3), "lr_too_high": 1e3}, 1.0)
    decay = 0.3 / rate if draw.has("weight_decay_too_high") else 0.0
    weights = list(model.parameters())
    if draw.has("wrong_parameters"):
        weights = list(nn.Linear(2, 1).parameters())
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    loss_fn = draw.watch.loss(nn.MSELoss())
    draw.watch.begin(model, optimizer)
    for step in range(steps):
        rows = torch.randint(len(seen), (size,))
        if draw.has("same_batch"):
            rows = torch.arange(24)
        loss = loss_fn(model(seen[rows]), known[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 199:
            with draw.watch.evaluating(), torch.no_grad():
                error = float((model(inside) - light[held]).square().mean())
                draw.watch.metric("psnr", -10 * math.log10(max(error, 1e-12) / 4))
    with torch.no_grad():
        return Ending(max(-1.0, explained(model(inside), light[held])), bar=0.75)


def _picture(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return places [N, 2] between -1 and 1, and the light [N, 1] there."""
    axis = torch.linspace(-1, 1, _SIDE)
    places = torch.cartesian_prod(axis, axis)
    light = torch.zeros(len(places))
    for _ in range(7):
        middle = 1.6 * torch.rand(2) - 0.8
        distance = (places - middle).square().sum(1)
        light += torch.randn(()) * torch.exp(-distance / (2 * draw.between(0.15, 0.35) ** 2))
    light += 0.3 * torch.sin(9 * places[:, 0] + 5 * places[:, 1])
    return places, ((light - light.mean()) / light.std())[:, None]


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "unnormalised_targets", "unnormalised_inputs"),
        *("wrong_output_activation", "same_batch", "large_init", "zero_init"),
        *("lr_too_low", "lr_too_high", "weight_decay_too_high", "wrong_parameters"),
    ),
    spent="2026-11-27",
)
