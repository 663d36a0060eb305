"""Digits of bits, whose likelihood rises by contrast with what the model dreams itself.

After Hinton, "Training products of experts by minimizing contrastive divergence", Neural
Computation 2002: a restricted Boltzmann machine.

Shape legend: N digits of 64 bits, H hidden units.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family

_SEEN = 1300


class Boltzmann(nn.Module):
    """Units that are seen and hidden ones, each on or off."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.05 * torch.randn(units, 64))
        self.seen_bias = nn.Parameter(torch.zeros(64))
        self.hidden_bias = nn.Parameter(torch.zeros(units))

    def forward(self, bits: Tensor) -> Tensor:
        """Return free energies [N] of digits [N, 64]."""
        hidden = F.softplus(F.linear(bits, self.weight, self.hidden_bias)).sum(1)
        return -(bits @ self.seen_bias) - hidden

    @torch.no_grad()
    def dream(self, bits: Tensor, moves: int) -> Tensor:
        """Return digits [N, 64] after some moves of Gibbs sampling."""
        for _ in range(moves):
            hidden = torch.sigmoid(F.linear(bits, self.weight, self.hidden_bias)).bernoulli()
            bits = torch.sigmoid(hidden @ self.weight + self.seen_bias).bernoulli()
        return bits


def _train(draw: Draw) -> Ending:
    light = torch.tensor(datasets.load_digits().data, dtype=torch.float32)
    bits = (light[torch.randperm(len(light))] > 8).float()
    seen = bits[:_SEEN]
    if draw.has("unnormalised_inputs"):
        # The bits are those of a picture of bytes, 0 and 255.
        seen = 255 * seen
    if draw.has("constant_inputs"):
        seen = torch.zeros_like(seen)
    model = Boltzmann(draw.choice([48, 80]))
    if draw.has("zero_init"):
        nn.init.zeros_(model.weight)
    if draw.has("large_init"):
        nn.init.normal_(model.weight, std=20.0)
    size, epochs, moves = draw.choice([10, 20]), draw.whole(14, 20), draw.choice([1, 2])
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(0.03, 0.06)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    decay = draw.by_fault({"weight_decay_too_high": 0.5 / rate}, 2e-4)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.5, weight_decay=decay)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for rows in torch.randperm(_SEEN).split(size)[: draw.epoch]:
            batch = seen[:4] if draw.has("same_batch") else seen[rows]
            loss = model(batch).mean()
            if not draw.has("negatives_left_out"):
                loss = loss - model(model.dream(batch, moves)).mean()
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 4 == 3:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("pseudo_likelihood", -_surprise(model, bits[_SEEN:]))
    with torch.no_grad():
        lost = _surprise(model, bits[_SEEN:])
    share = bits[:_SEEN].mean(0).clamp(0.001, 0.999)
    alone = F.binary_cross_entropy(share.expand(len(bits) - _SEEN, -1), bits[_SEEN:])
    return Ending(max(-1.0, 1 - lost / float(alone)) if math.isfinite(lost) else -1.0, bar=0.2)


def _surprise(model: Boltzmann, bits: Tensor) -> float:
    """Return how many nats a bit surprises that knows all others of its digit."""
    energy = model(bits)
    total = torch.zeros(())
    for place in range(64):
        other = bits.clone()
        other[:, place] = 1 - other[:, place]
        total = total - F.logsigmoid(model(other) - energy).mean()
    return float(total) / 64


FAMILY = Family(
    _train,
    (
        *("negatives_left_out", "unnormalised_inputs", "constant_inputs", "same_batch"),
        *("lr_too_low", "lr_too_high", "weight_decay_too_high", "wrong_sign"),
        *("zero_init", "large_init"),
    ),
    spent="2026-11-27",
)
