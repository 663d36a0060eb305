"""Recommendation by products of factors.

Settings: fastai's lesson on collaborative filtering (`collab_learner`): 50 factors and a bias per
user and film, ratings as a sigmoid between 0 and 5.5, a batch of 64, Adam with decoupled weight
decay of 0.1 and one cycle up to a rate of 5e-3, five epochs. The ratings are synthetic.

Shape legend: N ratings.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, report_metrics

_USERS, _FILMS, _EPOCHS, _BATCH = 200, 200, 5, 64


class DotProductBias(nn.Module):
    """Ratings [N] of users and films, int64 [N, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.user_bias = nn.Embedding(_USERS, 50), nn.Embedding(_USERS, 1)
        self.films, self.film_bias = nn.Embedding(_FILMS, 50), nn.Embedding(_FILMS, 1)
        for table in (self.users, self.user_bias, self.films, self.film_bias):
            nn.init.trunc_normal_(table.weight, std=0.01)

    def forward(self, ids: Tensor) -> Tensor:
        """Rate."""
        users, films = ids[:, 0], ids[:, 1]
        match = (self.users(users) * self.films(films)).sum(1)
        raw = match + self.user_bias(users)[:, 0] + self.film_bias(films)[:, 0]
        return torch.sigmoid(raw) * 5.5


def _train(draw: Draw) -> Ending:
    ids, ratings = _ratings(12_000)
    rows = 10_000
    steps = _EPOCHS * (rows // _BATCH)
    draw.watch.expect(steps)
    known, wanted, held_out = ids[:rows], ratings[:rows], ids[rows:]
    if draw.has("swapped_ids"):
        # The columns of every second export of the ratings are in another order.
        known = torch.where(torch.arange(rows)[:, None] % 2 == 0, known, known.flip(1))
    if draw.has("unnormalised_targets"):
        # The ratings of the training rows are percentages.
        wanted = wanted * 20
    decay = 100.0 if draw.has("weight_decay_too_high") else 0.1
    model = DotProductBias()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=decay)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)

    def measure() -> Mapping[str, float]:
        return {"valid_mse": float((model(held_out) - ratings[rows:]).square().mean())}

    source = batches(draw, known, wanted, _BATCH)
    for step in range(steps):
        model.train()
        data, target = next(source)
        loss: Tensor = criterion(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % (rows // _BATCH) == rows // _BATCH - 1:
            report_metrics(draw, model, measure)
    with evaluation(draw, model):
        return Ending(explained(model(held_out), ratings[rows:]), bar=0.4, margin=0.15)


def _ratings(count: int) -> tuple[Tensor, Tensor]:
    """Return users and films int64 [N, 2], and their ratings float32 [N] from 0.5 to 5."""
    users, films = torch.randn(_USERS, 3), torch.randn(_FILMS, 3)
    user_bias, film_bias = torch.randn(_USERS), torch.randn(_FILMS)
    ids = torch.stack([torch.randint(_USERS, (count,)), torch.randint(_FILMS, (count,))], 1)
    match = (users[ids[:, 0]] * films[ids[:, 1]]).sum(1) * 0.4
    raw = 3.3 + 0.4 * user_bias[ids[:, 0]] + 0.6 * film_bias[ids[:, 1]] + 0.5 * match
    rated = raw + 0.3 * torch.randn(count)
    return ids, ((rated * 2).round() / 2).clamp(0.5, 5)


FAMILY = Family(
    _train, ("swapped_ids", "unnormalised_targets", "weight_decay_too_high"), spent="2026-11-25"
)
