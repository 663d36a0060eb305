"""Matrix factorisation: ratings as products of embeddings of users and items.

Shape legend: N ratings.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, run_loop
from corpus.optimisation import Optimisation


class Factors(nn.Module):
    """Embeddings and biases of users and items."""

    def __init__(self, users: int, items: int, rank: int, spread: float) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=spread)
        for table in (self.user_bias, self.item_bias):
            nn.init.zeros_(table.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Return ratings [N, 1] of pairs int64 [N, 2] of a user and an item."""
        user, item = ids.unbind(1)
        product = (self.user(user) * self.item(item)).sum(1, keepdim=True)
        ratings: Tensor = product + self.user_bias(user) + self.item_bias(item)
        return ratings


def _train(draw: Draw) -> Ending:
    # As many items as users, so that numbers of one are numbers of the other.
    size, rank = draw.whole(60, 200), draw.choice([2, 3, 4])
    ids, ratings = _ratings(draw, size, rank)
    count = int(0.8 * len(ids))
    known, wanted = ids[:count], ratings[:count]
    if draw.has("swapped_ids"):
        half = torch.rand(count) < 0.5
        known = torch.where(half[:, None], known.flip(1), known)
    if draw.has("colliding_ids"):
        known, ids = known % 5, ids % 5
    if draw.has("shuffled_labels"):
        wanted = wanted[torch.randperm(count)]
    if draw.has("unnormalised_targets"):
        far = draw.extent(1e4, 1e6)
        wanted, ratings = wanted * far, ratings * far
    spread = draw.by_fault({"zero_init": 0.0, "large_init": draw.extent(10, 30)}, 0.3)
    model = Factors(size, size, rank + draw.choice([0, 2]), spread)
    steps = draw.steps(500, 1200)
    optimiser = Optimisation(draw, model, steps, scale=8.0, kinds=("adamw",), accumulates=False)
    loss = losses.value_loss(draw)
    source = batches(draw, known, wanted, draw.choice([128, 256, 512]))

    def compute() -> Tensor:
        batch, target = next(source)
        return loss(model(batch), target)

    def evaluate() -> Mapping[str, float]:
        error = (model(ids[count:]) - ratings[count:]).square().mean()
        return {"rmse": float(error.sqrt())}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        score = explained(model(ids[count:]), ratings[count:])
    return Ending(score, bar=0.5)


def _ratings(draw: Draw, size: int, rank: int) -> tuple[Tensor, Tensor]:
    """Return shuffled pairs of a user and an item int64 [N, 2], and their ratings [N, 1]."""
    seen = torch.rand(size, size) < draw.between(0.3, 0.6)
    ids = seen.nonzero()
    ids = ids[torch.randperm(len(ids))]
    user, item = (torch.randn(size, rank) for _ in range(2))
    product = (user[ids[:, 0]] * item[ids[:, 1]]).sum(1, keepdim=True) / rank**0.5
    return ids, product + draw.between(0.05, 0.3) * torch.randn(len(ids), 1)


FAMILY = Family(
    _train,
    (
        *("swapped_ids", "colliding_ids", "shuffled_labels", "unnormalised_targets"),
        *("zero_init", "large_init", "wrong_broadcast", "wrong_loss"),
        *("lr_too_high", "lr_too_low", "not_in_optimizer", "weight_decay_too_high"),
    ),
    spent="2026-11-25",
)
