"""How funny each user finds each joke: an autoencoder of the ratings that there are.

After Sedhain et al., "AutoRec: autoencoders meet collaborative filtering", WWW 2015; the users are
drawn.

Shape legend: N users, V jokes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_JOKES, _USERS, _TASTES = 50, 600, 3


def _train(draw: Draw) -> Ending:
    ratings, there, hidden = _jokes(draw)
    seen, known, counted = _spoilt(draw, ratings, there)
    dropout = draw.by_fault({"dropout_too_high": 0.99}, draw.choice([0.2, 0.3]))
    width = draw.choice([32, 48])
    head = nn.Linear(width, _JOKES)
    model = nn.Sequential(
        *(nn.Dropout(dropout), nn.Linear(_JOKES, width), nn.Sigmoid(), nn.Dropout(0.1), head)
    )
    if draw.has("wrong_output_activation"):
        # Ratings are standardised, and not stars.
        model.append(nn.Sigmoid())
    networks.spoil(draw, model)
    length = plan(draw, _USERS, [20, 30], (30, 40))
    rate = learning_rate(draw, 5e-3, 1e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate, 1e-5)

    def masked(found: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
        off = (found - wanted).square() * mask
        if draw.has("wrong_sign"):
            off = -off
        return off.sum() / mask.sum().clamp(min=1)

    loss = draw.watch.loss(masked)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        order = torch.randperm(_USERS)[: length.batches * length.size]
        for rows in order.split(length.size):
            optimizer.zero_grad()
            found = model(seen[rows] * counted[rows])
            loss(found, known[rows], counted[rows]).backward()
            optimizer.step()
        if epoch % 10 == 9:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("rmse", _error(model(ratings * there), ratings, hidden) ** 0.5)
    model.eval()
    with torch.no_grad():
        reached = _error(model(ratings * there), ratings, hidden)
    means = (ratings * there).sum(0) / there.sum(0)
    return Ending(1 - reached / _error(means.expand_as(ratings), ratings, hidden), bar=0.4)


def _error(found: Tensor, ratings: Tensor, hidden: Tensor) -> float:
    """Return the mean squared error of the ratings that are hidden."""
    return float(((found - ratings).square() * hidden).sum() / hidden.sum())


def _spoilt(draw: Draw, ratings: Tensor, there: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ratings that are read and learned, and where they are, with the drawn fault."""
    everywhere, shuffled = torch.ones_like(there), ratings[torch.randperm(len(ratings))]
    few = torch.arange(len(ratings)) % 10
    return draw.by_fault(
        {
            # What is not rated is learned to be 99, as the file has it.
            "mask_left_out": (ratings, torch.where(there > 0, ratings, 99.0), everywhere),
            "mask_inverted": (ratings, ratings * there, 1 - there),
            "shuffled_labels": (ratings, shuffled, there),
            # Jokes by users is read as users by jokes.
            "wrong_axis": (
                ratings.T.reshape(ratings.shape),
                ratings.T.reshape(ratings.shape),
                there.T.reshape(ratings.shape),
            ),
            "duplicated_rows": (ratings[few], ratings[few], there[few]),
        },
        (ratings, ratings, there),
    )


def _jokes(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return ratings [N, V], and 1 for those that are known and that are hidden, [N, V] each."""
    users, jokes = torch.randn(_USERS, _TASTES), torch.randn(_TASTES, _JOKES)
    ratings = users @ jokes / _TASTES**0.5 + 0.5 * torch.randn(_JOKES)
    ratings = ratings + draw.between(0.2, 0.4) * torch.randn_like(ratings)
    chance = torch.rand_like(ratings)
    return ratings, (chance < 0.5).float(), (chance > 0.8).float()


FAMILY = Family(
    _train,
    (
        *("mask_left_out", "mask_inverted", "shuffled_labels", "wrong_axis", "duplicated_rows"),
        *("wrong_output_activation", "dropout_too_high", "weight_decay_too_high", "lr_too_low"),
        *("lr_too_high", "wrong_sign"),
    ),
    spent="2026-11-28",
)
