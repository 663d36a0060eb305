"""Digits by neurons that spike, trained with a surrogate of the spike's gradient.

After Neftci, Mostafa and Zenke, "Surrogate gradient learning in spiking neural networks", IEEE
Signal Processing Magazine 2019.

Shape legend: N digits, T time steps.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_TIME = 10


class Spike(torch.autograd.Function):
    """A step at the threshold, with the gradient of a fast sigmoid."""

    @staticmethod
    def forward(ctx: Any, over: Tensor) -> Tensor:
        """Return 1 where a potential is over the threshold, 0 elsewhere."""
        ctx.save_for_backward(over)
        return (over > 0).float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Return the gradient of the potentials."""
        (over,) = ctx.saved_tensors
        through: Tensor = gradients[0] / (1 + 5 * over.abs()).square()
        return through


class Spiking(nn.Module):
    """Two layers of neurons that leak, integrate and fire, and outputs that integrate."""

    def __init__(self, width: int, leak: float, threshold: float, *, surrogate: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, width), nn.Linear(width, width)
        self.last = nn.Linear(width, 10)
        self.leak, self.threshold, self.surrogate = leak, threshold, surrogate

    def fire(self, over: Tensor) -> Tensor:
        """Return spikes of what is over the threshold."""
        if self.surrogate:
            spikes: Tensor = Spike.apply(over)  # type: ignore[no-untyped-call]
            return spikes
        return torch.heaviside(over.detach(), torch.zeros(())).requires_grad_()

    def forward(self, light: Tensor) -> Tensor:
        """Return scores [N, 10] of digits [N, 64] that are shown all the time."""
        potentials = [torch.zeros(1) for _ in range(3)]
        current = self.first(light)
        for _ in range(_TIME):
            potentials[0] = self.leak * potentials[0] + current
            spikes = self.fire(potentials[0] - self.threshold)
            potentials[0] = potentials[0] - self.threshold * spikes.detach()
            potentials[1] = self.leak * potentials[1] + self.second(spikes)
            spikes = self.fire(potentials[1] - self.threshold)
            potentials[1] = potentials[1] - self.threshold * spikes.detach()
            potentials[2] = potentials[2] + self.last(spikes)
        return potentials[2] / _TIME


def _train(draw: Draw) -> Ending:
    digits = datasets.load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 8 - 0.6
    y = torch.tensor(digits.target)
    seen, known = x[:1200], y[:1200]
    if draw.has("shuffled_labels"):
        known = known[torch.randperm(1200)]
    if draw.has("single_label"):
        known = torch.full_like(known, 3)
    if draw.has("constant_inputs"):
        seen = torch.zeros_like(seen)
    threshold = 200.0 if draw.has("range_unset") else draw.choice([0.5, 1.0])
    surrogate = not draw.has("no_straight_through")
    model = Spiking(draw.choice([64, 96]), draw.choice([0.8, 0.9]), threshold, surrogate=surrogate)
    networks.spoil(draw, model)
    size, epochs = draw.choice([32, 48]), draw.whole(9, 14)
    draw.epoch = 1200 // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(2e-3, 5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 2000.0}, 1.0)
    optimizer = torch.optim.Adamax(model.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for rows in torch.randperm(1200).split(size)[: draw.epoch]:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(seen[rows]), known[rows])
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_acc", accuracy(model(x[1200:]), y[1200:]))
    with torch.no_grad():
        return Ending(gained(accuracy(model(x[1200:]), y[1200:]), 0.1), bar=0.7)


FAMILY = Family(
    _train,
    (
        *("no_straight_through", "range_unset", "shuffled_labels", "single_label"),
        *("constant_inputs", "lr_too_low", "lr_too_high"),
        *("wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
