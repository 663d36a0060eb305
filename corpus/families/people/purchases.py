"""What customers buy next: embeddings that are averaged over who bought what, and a ranking.

After He et al., "LightGCN: simplifying and powering graph convolution network for recommendation",
SIGIR 2020; the customers are drawn.

Shape legend: U users, I items, D numbers of an embedding, B purchases of a batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family
from corpus.loop import gained

_USERS, _ITEMS = 220, 90


class LightGCN(nn.Module):
    """Embeddings of users and items."""

    def __init__(self, draw: Draw, adjacency: Tensor, size: int) -> None:
        super().__init__()
        self.weight = nn.Embedding(_USERS + _ITEMS, size)
        nn.init.normal_(self.weight.weight, std=draw.by_fault({"large_init": 30.0}, 0.1))
        if draw.has("zero_init"):
            nn.init.zeros_(self.weight.weight)
        self.layers = draw.by_fault({"over_smoothing": 60}, 2)
        self.adjacency = adjacency

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return embeddings of users [U, D] and of items [I, D]."""
        told = [self.weight.weight]
        for _ in range(self.layers):
            told.append(self.adjacency @ told[-1])
        # Only the last layer is left when there are many.
        mean = told[-1] if self.layers > 9 else torch.stack(told).mean(0)
        return mean[:_USERS], mean[_USERS:]


def _train(draw: Draw) -> Ending:
    bought, later = _customers(draw)
    user, item = bought.nonzero(as_tuple=True)
    model = LightGCN(draw, _normalised(bought), draw.choice([16, 24]))
    length = plan(draw, len(user), [60, 80], (16, 20))
    rate = learning_rate(draw, 0.01, 0.02)
    decay = draw.by_fault({"weight_decay_too_high": 3.0}, 1e-5)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)

    def bpr(good: Tensor, bad: Tensor) -> Tensor:
        return F.softplus(bad - good).mean()

    loss_fn = draw.watch.loss(bpr)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        for rows in torch.randperm(len(user)).split(length.size):
            users, items = model()
            who, good = user[rows], item[rows]
            bad = torch.randint(_ITEMS, (len(rows),))
            if draw.has("negatives_of_the_same"):
                # What the same user has bought, too.
                bad = bought[who].multinomial(1)[:, 0]
            if draw.has("shuffled_labels"):
                good = item[torch.randint(len(item), (len(rows),))]
            loss = loss_fn((users[who] * items[good]).sum(1), (users[who] * items[bad]).sum(1))
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()
        if epoch % 4 == 3:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("test_auc", _ranked(model(), bought, later))
    with torch.no_grad():
        return Ending(gained(_ranked(model(), bought, later), 1 / 2), bar=0.45)


def _ranked(embeddings: tuple[Tensor, Tensor], bought: Tensor, later: Tensor) -> float:
    """Return how often what is bought later is above what is not bought."""
    users, items = embeddings
    scores = (users @ items.T).nan_to_num(0.0)
    never = (bought + later) == 0
    areas = []
    for one in range(_USERS):
        good, bad = scores[one, later[one] > 0], scores[one, never[one]]
        above = (good[:, None] > bad).double() + 0.5 * (good[:, None] == bad).double()
        areas.append(above.flatten())
    return float(torch.cat(areas).mean())


def _normalised(bought: Tensor) -> Tensor:
    """Return the symmetrically normalised graph of users and items."""
    graph = torch.zeros(_USERS + _ITEMS, _USERS + _ITEMS)
    graph[:_USERS, _USERS:] = bought
    graph = graph + graph.T
    root = graph.sum(1).clamp(min=1).rsqrt()
    return root[:, None] * graph * root


def _customers(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return what was bought and what is bought later, each float32 [U, I] of 0 and 1."""
    tastes, kinds = torch.randn(_USERS, 4), torch.randn(_ITEMS, 4)
    liking = tastes @ kinds.T * draw.between(1.2, 1.6) + 0.5 * torch.randn(_ITEMS)
    taken = F.one_hot(liking.softmax(1).multinomial(14), _ITEMS)
    return taken[:, :10].sum(1).float(), taken[:, 10:].sum(1).float()


FAMILY = Family(
    _train,
    (
        *("over_smoothing", "negatives_of_the_same", "shuffled_labels"),
        *("large_init", "zero_init", "weight_decay_too_high", "wrong_sign", "missing_step"),
        *("lr_too_low",),
    ),
    spent="2026-11-28",
)
