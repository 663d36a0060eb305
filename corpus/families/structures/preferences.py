"""Implicit feedback: users prefer what they took to what they did not.

After Rendle et al., "BPR: Bayesian personalized ranking from implicit feedback", UAI 2009.

Shape legend: N triples of a user, an item taken, and one that was not.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation


class Tastes(nn.Module):
    """Scores of items for users: a product of embeddings and a bias."""

    def __init__(self, users: int, items: int, rank: int, spread: float) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.bias = nn.Embedding(items, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=spread)
        nn.init.zeros_(self.bias.weight)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return scores [N] of users and items, both int64 [N]."""
        scores: Tensor = (self.user(user) * self.item(item)).sum(1) + self.bias(item)[:, 0]
        return scores


def _train(draw: Draw) -> Ending:
    users, items = draw.whole(80, 200), draw.whole(100, 300)
    taken, hidden = _feedback(draw, users, items)
    pairs = taken.nonzero()
    if draw.has("shuffled_labels"):
        pairs = torch.stack([pairs[:, 0], pairs[torch.randperm(len(pairs)), 1]], 1)
    spread = draw.by_fault({"zero_init": 0.0, "large_init": draw.extent(20, 60)}, 0.1)
    model = Tastes(users, items, draw.choice([8, 12]), spread)
    steps, size = draw.steps(300, 700), draw.choice([128, 256])
    optimiser = Optimisation(draw, model, steps, scale=6.0, kinds=("adamw",), accumulates=False)
    decay = draw.choice([1e-4, 1e-3])

    def bpr(better: Tensor, worse: Tensor) -> Tensor:
        if draw.has("term_wrong_sign"):
            better, worse = worse, better
        return -F.logsigmoid(better - worse).mean()

    loss = draw.watch.loss(bpr)

    def compute() -> Tensor:
        user, item = pairs[torch.randint(len(pairs), (size,))].unbind(1)
        other = torch.randint(items, (size,))
        if draw.has("colliding_ids"):
            user, item, other = user % 7, item % 7, other % 7
        better, worse = model(user, item), model(user, other)
        used = model.user(user).square().sum() + model.item(item).square().sum()
        total: Tensor = loss(better, worse) + decay * used / size
        return total

    def evaluate() -> Mapping[str, float]:
        return {"auc": _area(model, taken, hidden)}

    chosen = evaluate if draw.chance(0.5) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(2 * _area(model, taken, hidden) - 1, bar=0.45)


def _feedback(draw: Draw, users: int, items: int) -> tuple[Tensor, Tensor]:
    """Return what users took, and what is kept for the evaluation, both bool [users, items]."""
    liking = torch.randn(users, 3) @ torch.randn(3, items)
    chance = torch.sigmoid(draw.between(2, 3) * liking - 3)
    seen = torch.rand(users, items) < chance
    hidden = seen & (torch.rand(users, items) < 0.25)
    return seen & ~hidden, hidden


def _area(model: Tastes, taken: Tensor, hidden: Tensor) -> float:
    """Return the area under the curve: hidden items of a user against those never taken."""
    user, item = hidden.nonzero()[torch.randint(int(hidden.sum()), (4000,))].unbind(1)
    other = torch.multinomial((~taken & ~hidden)[user].float(), 1)[:, 0]
    gap = (model(user, item) - model(user, other)).double()
    return float((gap > 0).double().mean() + 0.5 * (gap == 0).double().mean())


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "colliding_ids", "shuffled_labels", "zero_init"),
        *("large_init", "lr_too_low", "weight_decay_too_high", "not_in_optimizer"),
        *("wrong_parameters", "scheduler_to_zero"),
    ),
    spent="2026-11-26",
)
