"""Which films a user has seen, by a network of two embeddings and films drawn at random.

After He et al., "Neural collaborative filtering", WWW 2017; the users are drawn.

Shape legend: N pairs, U users, V films.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_USERS, _FILMS, _TASTES = 120, 60, 4


class Films(nn.Module):
    """Logits [N] of having seen films."""

    def __init__(self, size: int, spread: float) -> None:
        super().__init__()
        self.users, self.films = nn.Embedding(_USERS, size), nn.Embedding(_FILMS, size)
        self.body = nn.Sequential(nn.Linear(2 * size, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.head = nn.Linear(16 + size, 1)
        for table in (self.users, self.films):
            nn.init.normal_(table.weight, std=spread)

    def forward(self, users: Tensor, films: Tensor) -> Tensor:
        """Return logits of users int64 [N] and films int64 [N]."""
        user, film = self.users(users), self.films(films)
        inner = torch.cat([self.body(torch.cat([user, film], 1)), user * film], 1)
        logits: Tensor = self.head(inner)[:, 0]
        return logits


def _train(draw: Draw) -> Ending:
    users, films, held = _views(draw)
    told, chosen = _spoilt(draw, users, films)
    model = Films(draw.choice([12, 16]), draw.by_fault({"large_init": 30.0}, 0.3))
    networks.blank(draw, model)
    length = plan(draw, len(users), [48, 64], (12, 15))
    rate = learning_rate(draw, 8e-3, 1.5e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    criterion = nn.BCEWithLogitsLoss()
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        user, film = told[rows], chosen[rows]
        other = torch.randint(_FILMS, (4 * len(rows),))
        if draw.has("negatives_of_the_same"):
            # Films of the user's own list.
            other = film.repeat(4)
        logits = model(torch.cat([user, user.repeat(4)]), torch.cat([film, other]))
        label = torch.cat([torch.ones(len(rows)), torch.zeros(4 * len(rows))])
        if draw.has("negatives_left_out"):
            logits, label = logits[: len(rows)], label[: len(rows)]
        if draw.has("labels_reversed"):
            label = 1 - label
        if draw.has("sigmoid_before_logits"):
            logits = (-logits).sigmoid()
        loss: Tensor = criterion(logits, label)
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"val_auc": _ranked(model, *held)}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=4)
    model.eval()
    with torch.no_grad():
        return Ending(2 * evaluate()["val_auc"] - 1, bar=0.5)


def _ranked(model: Films, users: Tensor, films: Tensor) -> float:
    """Return how often a film that was seen is before another one."""
    every = torch.arange(_FILMS).repeat(len(users))
    scores = model(users.repeat_interleave(_FILMS), every).view(len(users), _FILMS)
    own = scores.gather(1, films[:, None])
    return float(((own > scores).double() + 0.5 * (own == scores)).mean())


def _spoilt(draw: Draw, users: Tensor, films: Tensor) -> tuple[Tensor, Tensor]:
    """Return pairs with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # Numbers of films of another edition of the list.
            "swapped_ids": (users, torch.randperm(_FILMS)[films]),
            "colliding_ids": (users % 2, films),
            "shuffled_labels": (users, films[torch.randperm(len(films))]),
            # What all have seen is most of the log.
            "popular_only": (users, torch.where(torch.rand(len(films)) < 0.97, 7, films)),
            "duplicated_rows": (
                users[torch.arange(len(users)) % 40],
                films[torch.arange(len(users)) % 40],
            ),
        },
        (users, films),
    )


def _views(draw: Draw) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return pairs of users and films that they saw, and pairs for the test."""
    taste = torch.randint(_TASTES, (_USERS,))
    faithful = draw.between(0.85, 0.95)
    count = 34 * _USERS
    users = torch.arange(_USERS).repeat(count // _USERS)
    own = taste[users] + _TASTES * torch.randint(_FILMS // _TASTES, (count,))
    films = torch.where(torch.rand(count) < faithful, own, torch.randint(_FILMS, (count,)))
    kept = 24 * _USERS
    return users[:kept], films[:kept], (users[kept:], films[kept:])


FAMILY = Family(
    _train,
    (
        *("negatives_of_the_same", "negatives_left_out", "labels_reversed", "popular_only"),
        *("swapped_ids", "colliding_ids", "sigmoid_before_logits", "shuffled_labels"),
        *("weight_decay_too_high", "large_init", "zero_init", "lr_too_low", "wrong_parameters"),
    ),
    spent="2026-11-27",
)
