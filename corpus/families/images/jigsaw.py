"""Quarters of digits in their places again, by a matrix that is nearly a permutation.

After Mena et al., "Learning latent permutations with Gumbel-Sinkhorn networks", ICLR 2018.

Shape legend: N digits, 4 quarters of 16 pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

_SEEN = 1300


class Places(nn.Module):
    """Shares [N, 4, 4] of each quarter [N, 4, 16] at each place."""

    def __init__(self, width: int, temperature: float, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, width), nn.Linear(width, width)
        self.last = nn.Linear(width, 4)
        self.temperature, self.dropout = temperature, dropout

    def forward(self, quarters: Tensor) -> Tensor:
        """Return the shares, whose rows and columns have a sum of 1."""
        inner = F.leaky_relu(self.first(quarters))
        inner = F.leaky_relu(self.second(inner))
        inner = F.dropout(inner, self.dropout, self.training)
        shares: Tensor = self.last(inner) / self.temperature
        for _ in range(8):
            shares = shares - shares.logsumexp(2, keepdim=True)
            shares = shares - shares.logsumexp(1, keepdim=True)
        return shares.exp()


def _train(draw: Draw) -> Ending:
    whole = _quarters()
    held, seen = whole[_SEEN:], whole[:_SEEN]
    factor = 1e4 if draw.has("unnormalised_inputs") else 1.0
    temperature = draw.choice([0.5, 1.0])
    dropout = draw.choice([0.0, 0.1])
    model = Places(draw.choice([48, 80]), temperature, dropout)
    networks.spoil(draw, model)
    size, steps = draw.choice([32, 64]), draw.steps(500, 800)
    rate = draw.between(2e-3, 5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 2000.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), rate, betas=(0.9, 0.98))
    draw.watch.begin(model, optimizer)
    for step in range(1, steps + 1):
        wanted = seen[torch.randint(5 if draw.has("same_batch") else _SEEN, (size,))]
        shuffled, _ = _shuffled(wanted)
        if draw.has("constant_inputs"):
            shuffled = torch.zeros_like(shuffled)
        if draw.has("swapped_coordinates"):
            # Counted by columns, and not by rows.
            wanted = wanted[:, [0, 2, 1, 3]]
        loss = F.mse_loss(model(factor * shuffled).mT @ shuffled, wanted)
        model.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if step % 100 == 0:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("placed_right", _placed(model, held, factor))
            model.train()
    model.eval()
    with torch.no_grad():
        return Ending(gained(_placed(model, held, factor), 0.25), bar=0.6)


def _placed(model: Places, whole: Tensor, factor: float) -> float:
    """Return the share of the quarters that are put in their places."""
    shuffled, order = _shuffled(whole)
    return float((model(factor * shuffled).argmax(2) == order).float().mean())


def _shuffled(whole: Tensor) -> tuple[Tensor, Tensor]:
    """Return quarters in another order, and the place int64 [N, 4] of each."""
    order = torch.rand(len(whole), 4).argsort(1)
    return whole.gather(1, order[:, :, None].expand(-1, -1, 16)), order


def _quarters() -> Tensor:
    """Return the quarters float32 [N, 4, 16] of all digits, in a random order."""
    light = torch.tensor(datasets.load_digits().images, dtype=torch.float32) / 8 - 0.6
    light = light[torch.randperm(len(light))]
    return light.reshape(-1, 2, 4, 2, 4).permute(0, 1, 3, 2, 4).reshape(-1, 4, 16)


FAMILY = Family(
    _train,
    (
        *("swapped_coordinates", "constant_inputs"),
        *("unnormalised_inputs", "lr_too_low", "lr_too_high"),
        *("wrong_sign", "zero_init", "same_batch"),
    ),
    spent="2026-11-27",
)
