"""Clothes that someone liked, and others of which nobody knows whether they would.

After Kiryo et al., "Positive-unlabeled learning with non-negative risk estimator", NeurIPS 2017.

Shape legend: N pictures of 196 pixels.
"""

from __future__ import annotations

from itertools import cycle

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

_LIKED, _UNKNOWN = 400, 2000
# T-shirts, pullovers, coats, shirts: a share of 0.4 of all.
_KINDS, _SHARE = torch.tensor([0, 2, 4, 6]), 0.4


def _train(draw: Draw) -> Ending:
    x, kind = clothes(5000)
    x, good = x.flatten(1), torch.isin(kind, _KINDS)
    if draw.has("unnormalised_inputs"):
        x = 1e4 * x + 2e4
    liked, unknown = x[:2000][good[:2000]][:_LIKED], x[2000 : 2000 + _UNKNOWN]
    if draw.has("swapped_groups"):
        liked, unknown = unknown[:_LIKED], liked.repeat(5, 1)
    if draw.has("shuffled_labels"):
        both = torch.cat([liked, unknown])[torch.randperm(_LIKED + _UNKNOWN)]
        liked, unknown = both.split([_LIKED, _UNKNOWN])
    if draw.has("constant_inputs"):
        liked, unknown = torch.zeros_like(liked), torch.zeros_like(unknown)
    model = nn.Sequential(
        *(nn.Linear(196, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1)),
    )
    networks.spoil(draw, model)
    size, epochs = draw.choice([40, 50]), draw.whole(14, 20)
    draw.epoch = _UNKNOWN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(5e-4, 1e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 3000.0}, 1.0)
    decay = draw.by_fault({"weight_decay_too_high": 0.3 / rate}, 1e-4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    draw.watch.begin(model, optimizer)
    known = cycle(range(0, _LIKED, 20))
    for _ in range(epochs):
        for rows in torch.randperm(_UNKNOWN).split(size):
            first = next(known)
            both = model(torch.cat([liked[first : first + 20], unknown[rows]]))[:, 0]
            loss = _risk(draw, both[:20], both[20:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("balanced_accuracy", _balanced(model(x[4000:]), good[4000:]))
    with torch.no_grad():
        return Ending(gained(_balanced(model(x[4000:]), good[4000:]), 0.5), bar=0.6)


def _risk(draw: Draw, liked: Tensor, unknown: Tensor) -> Tensor:
    """Return the estimated risk, of the sigmoid loss, from scores of both groups."""
    share = draw.by_fault({"prior_too_high": 0.97}, _SHARE)
    missed = share * torch.sigmoid(-liked).mean()
    others = torch.sigmoid(unknown).mean() - share * torch.sigmoid(liked).mean()
    if draw.has("term_wrong_sign"):
        return missed - others
    risk = missed + others.clamp(min=0)
    return -risk if draw.has("wrong_sign") else risk


def _balanced(scores: Tensor, good: Tensor) -> float:
    """Return the mean of how often the good ones and the others are found."""
    found = scores[:, 0] > 0
    return float(found[good].float().mean() + (~found)[~good].float().mean()) / 2


FAMILY = Family(
    _train,
    (
        *("swapped_groups", "prior_too_high", "term_wrong_sign", "shuffled_labels"),
        *("constant_inputs", "unnormalised_inputs", "lr_too_low", "lr_too_high"),
        *("weight_decay_too_high", "wrong_sign", "zero_init", "dead_relu", "detached_graph"),
    ),
    spent="2026-11-27",
)
