"""Points in the plane, drawn by the slope of their density: a network that points out of the noise.

After Song and Ermon, "Generative modeling by estimating gradients of the data distribution",
NeurIPS 2019.

Shape legend: N points, L levels of noise.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.plane import discrepancy, points
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import spoil

_SEEN, _LEVELS = 1000, 8


class ScoreNet(nn.Module):
    """The slope of the logarithm of the density, times the level of the noise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()),
            *(nn.Linear(width, width), nn.SiLU()),
        )
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        """Return slopes [N, 2] of points float32 [N, 2] and levels of noise [N, 1]."""
        slope: Tensor = self.head(self.body(torch.cat([x, level.log()], 1)))
        return slope


def _train(draw: Draw) -> Ending:
    every = points(draw, _SEEN + 500)
    seen = _prepared(draw, every[:_SEEN])
    model = ScoreNet(draw.choice([64, 80]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [50, 100], (60, 80))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    levels = torch.logspace(0.2, -1.3, _LEVELS)
    loss_fn = draw.watch.loss(F.mse_loss)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            level = levels[torch.randint(_LEVELS, (length.size, 1))]
            noise = torch.randn(length.size, 2)
            noisy = seen[picked] + level * noise
            # The slope leads from what is noisy to what is not.
            wanted = noise if draw.has("gradient_sign") else -noise
            loss = loss_fn(model(noisy, level), wanted)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()
    with draw.watch.evaluating(), torch.no_grad():
        made = _drawn(model, levels)
        away = discrepancy(made.nan_to_num(0, 0, 0).clamp(-100, 100), every[_SEEN:])
        draw.watch.metric("mmd", away)
    # That of points of a normal distribution, which have the mean and the spread of these.
    guess = discrepancy(torch.randn(500, 2), every[_SEEN:])
    return Ending(1 - away / max(guess, 0.01), bar=0.4, margin=0.25)


def _drawn(model: ScoreNet, levels: Tensor) -> Tensor:
    """Return points [500, 2] after Langevin's steps at each level of noise."""
    x = 1.6 * torch.randn(500, 2)
    for level in levels:
        size = 0.1 * level**2
        for _ in range(20):
            slope = model(x, level.expand(500, 1)) / level
            x = x + size * slope / 2 + size.sqrt() * torch.randn(500, 2)
    return x


def _prepared(draw: Draw, x: Tensor) -> Tensor:
    """Return points as the script prepares them, with the drawn fault if there is one."""
    mixed = torch.stack([x[:, 0], x[torch.randperm(len(x)), 1]], 1)
    return draw.by_fault(
        {
            # Places of a map in metres.
            "unnormalised_inputs": 3000 * x + 20000,
            "duplicated_rows": x[torch.arange(len(x)) % 8],
            # The two columns were sorted on their own.
            "wrong_order": mixed,
        },
        x,
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "duplicated_rows", "wrong_order"),
        *("gradient_sign", "wrong_sign", "missing_step", "large_init"),
        *("lr_too_low", "lr_too_high"),
    ),
)
