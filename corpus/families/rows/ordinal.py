"""Grades from one to six, which have an order: how likely each of them is exceeded.

After Cao, Mirjalili and Raschka, "Rank consistent ordinal regression for neural networks", Pattern
Recognition Letters 2020.

Shape legend: N rows, 6 grades, 5 steps between them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_GRADES, _SEEN = 6, 1400


class Grader(nn.Module):
    """A quality of each row, and how much of it each grade needs."""

    def __init__(self, features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.quality = nn.Sequential(
            *(nn.Linear(features, width), nn.SiLU(), nn.Dropout(dropout)),
            *(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1, bias=False)),
        )
        self.needed = nn.Parameter(torch.linspace(-1, 1, _GRADES - 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logit [N, 5] of exceeding each grade but the best."""
        logits: Tensor = self.quality(x) - self.needed
        return logits


def _train(draw: Draw) -> Ending:
    features = draw.choice([6, 9])
    x, y = _rows(draw, 1900, features)
    if draw.has("unnormalised_inputs"):
        x = 1e4 * x + 5e4
    known = y[:_SEEN]
    if draw.has("misaligned_targets"):
        known = known[torch.randperm(_SEEN)]
    if draw.has("off_by_one"):
        # The grades are counted from one on.
        known = known + 1
    if draw.has("single_label"):
        known = torch.full_like(known, 2)
    if draw.has("reversed_scale"):
        # In one of two countries, a one is the best.
        known = torch.where(torch.rand(_SEEN) < 0.5, _GRADES - 1 - known, known)
    dropout = draw.by_fault({"dropout_too_high": 0.98}, draw.choice([0.0, 0.1]))
    model = Grader(features, draw.choice([40, 64]), dropout)
    networks.spoil(draw, model)
    size, epochs = draw.choice([35, 50]), draw.whole(22, 32)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(0.01, 0.02)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5)}, 1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-3)
    total = epochs * draw.epoch
    if draw.has("scheduler_to_zero"):
        # As many steps as there are epochs.
        total = epochs
    cycle = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.0, min(step / (0.1 * total) + 0.1, 1.0, 1.2 - step / total))
    )
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(_SEEN).split(size):
            loss = _loss(draw, model(x[:_SEEN][rows]), known[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cycle.step()
        model.eval()
        if epoch % 4 == 3:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_mae", _missed(model(x[_SEEN:]), y[_SEEN:]))
    with torch.no_grad():
        missed = _missed(model(x[_SEEN:]), y[_SEEN:])
    alone = float((y[_SEEN:] - y[_SEEN:].median()).abs().float().mean())
    return Ending(max(-1.0, 1 - missed / alone), bar=0.5)


def _loss(draw: Draw, logits: Tensor, grade: Tensor) -> Tensor:
    exceeds = (grade[:, None] > torch.arange(_GRADES - 1)).float()
    likely = F.logsigmoid(logits)
    loss = -(exceeds * likely + (1 - exceeds) * (likely - logits)).sum(1).mean()
    return -loss if draw.has("wrong_sign") else loss


def _missed(logits: Tensor, grade: Tensor) -> float:
    """Return by how many grades the found ones are wrong, on average."""
    return float(((logits > 0).sum(1) - grade).abs().float().mean())


def _rows(draw: Draw, count: int, features: int) -> tuple[Tensor, Tensor]:
    """Return rows float32 [count, features] and grades int64 [count] from zero on."""
    x = torch.randn(count, features)
    quality = x[:, 0] + x[:, 1].abs() - x[:, 2] * x[:, 3] + 0.5 * x[:, 4]
    quality = quality + draw.between(0.1, 0.3) * torch.randn(count)
    steps = torch.quantile(quality, torch.linspace(0, 1, _GRADES + 1)[1:-1])
    return x, torch.bucketize(quality, steps)


FAMILY = Family(
    _train,
    (
        *("reversed_scale", "off_by_one", "scheduler_to_zero", "misaligned_targets"),
        *("single_label", "unnormalised_inputs", "dropout_too_high", "lr_too_low"),
        *("wrong_sign", "zero_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
