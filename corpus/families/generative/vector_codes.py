"""Digits as a few entries of a codebook each, from which they are drawn again.

After van den Oord et al., "Neural discrete representation learning", NeurIPS 2017.

Shape legend: N images, K entries, P places of an image, E size of an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation


class Coded(NamedTuple):
    """Images [N, 1, 8, 8] drawn again, and the terms of the codebook and of the commitment."""

    image: Tensor
    codebook: Tensor
    commitment: Tensor


class VectorQuantised(nn.Module):
    """An encoder to 2 x 2 places, a codebook and a decoder."""

    def __init__(self, width: int, size: int, entries: int, *, straight: bool) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            *(nn.Conv2d(1, width, 4, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.ReLU()),
            nn.Conv2d(2 * width, size, 1),
        )
        self.entries = nn.Parameter(0.3 * torch.randn(entries, size))
        self.decode = nn.Sequential(
            *(nn.ConvTranspose2d(size, 2 * width, 4, stride=2, padding=1), nn.ReLU()),
            *(nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.ReLU()),
            nn.Conv2d(width, 1, 3, padding=1),
        )
        self.straight = straight

    def forward(self, x: Tensor) -> Coded:
        """Return images [N, 1, 8, 8] coded."""
        inner = self.encode(x).permute(0, 2, 3, 1)
        flat = inner.reshape(-1, inner.shape[3])
        nearest = torch.cdist(flat, self.entries).argmin(1)
        chosen = self.entries[nearest].reshape(inner.shape)
        passed = inner + (chosen - inner).detach() if self.straight else chosen.detach()
        return Coded(
            self.decode(passed.permute(0, 3, 1, 2)),
            (chosen - inner.detach()).square().mean(),
            (inner - chosen.detach()).square().mean(),
        )


def _train(draw: Draw) -> Ending:
    images = load_digits(return_X_y=True)[0]
    x = torch.tensor(images / 8 - 1, dtype=torch.float32).reshape(-1, 1, 8, 8)
    x = x[torch.randperm(len(x))]
    train, valid = x[:1400].clone(), x[1400:]
    if draw.has("constant_inputs"):
        train = train.mean(0, keepdim=True).expand(1400, -1, -1, -1)
    if draw.has("duplicated_rows"):
        train = train[torch.arange(1400) % 6]
    straight = not draw.has("no_straight_through")
    entries = 2 if draw.has("few_levels") else draw.choice([48, 96])
    model = VectorQuantised(draw.choice([16, 24]), 16, entries, straight=straight)
    networks.spoil(draw, model)
    steps, size = draw.steps(500, 900), draw.choice([32, 64])
    kinds = ("adam", "adamw")
    optimiser = Optimisation(draw, model, steps, kinds=kinds, accumulates=False)
    committed = draw.choice([0.25, 0.5])

    def compute() -> Tensor:
        wanted = train[torch.randint(len(train), (size,))]
        coded: Coded = model(wanted)
        if draw.has("misaligned_targets"):
            wanted = wanted.roll(1, dims=0)
        error = F.mse_loss(coded.image, wanted)
        if draw.has("term_wrong_sign"):
            # Of the commitment: what is encoded flees from the codebook.
            return error + coded.codebook - 3 * coded.commitment
        if draw.has("term_left_out"):
            return coded.codebook + committed * coded.commitment
        return error + coded.codebook + committed * coded.commitment

    def held_out() -> float:
        return float(F.mse_loss(model(valid).image, valid))

    def evaluate() -> Mapping[str, float]:
        return {"reconstruction": held_out()}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    trivial = float((valid - x[:1400].mean(0)).square().mean())
    with evaluation(draw, model):
        return Ending(1 - held_out() / trivial, bar=0.4, margin=0.15)


FAMILY = Family(
    _train,
    (
        *("no_straight_through", "few_levels", "term_wrong_sign", "term_left_out"),
        *("misaligned_targets", "constant_inputs", "duplicated_rows"),
        *("lr_too_low", "lr_too_high", "wrong_parameters", "detached_graph", "scheduler_to_zero"),
    ),
    spent="2026-11-26",
)
