"""Pictures of clothes that nobody labelled: two views of each, and numbers that do not repeat.

After Zbontar et al., "Barlow twins: self-supervised learning via redundancy reduction", ICML 2021,
with the pictures of Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017.

Shape legend: B pictures of a batch, D numbers of an embedding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import spoil

_SEEN, _EMBEDDING = 800, 24


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    a, b = ((one - one.mean(0)) / (one.std(0) + 1e-5) for one in (a, b))
    return a.T @ b / len(a)


def _redundancy(a: Tensor, b: Tensor) -> Tensor:
    c = _correlation(a, b)
    off = c - torch.diag(c.diagonal())
    return (1 - c.diagonal()).square().sum() + 0.02 * off.square().sum()


def _only_off(a: Tensor, b: Tensor) -> Tensor:
    c = _correlation(a, b)
    return 0.02 * (c - torch.diag(c.diagonal())).square().sum()


def _train(draw: Draw) -> Ending:
    order = torch.tensor(draw.numpy.permutation(6000)[: _SEEN + 500])
    pictures = clothes(6000)[0][order]
    given = torch.zeros_like(pictures) if draw.has("constant_inputs") else pictures
    channels = draw.choice([12, 16])
    encoder = nn.Sequential(
        *(nn.Conv2d(1, channels, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(2 * channels * 16, 48)),
    )
    projector = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, _EMBEDDING))
    model = nn.Sequential(encoder, projector)
    spoil(draw, model)
    length = plan(draw, _SEEN, [80, 100], (14, 18))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, projector), rate, 1e-6)
    loss_fn = draw.watch.loss(_only_off if draw.has("term_left_out") else _redundancy)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        total = 0.0
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            one, other = _view(draw, given[picked]), _view(draw, given[picked])
            loss = loss_fn(model(one), model(other))
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()
            total += loss.item()
        draw.watch.metric("train_loss", total / length.batches)
    fresh = given[_SEEN:]
    with draw.watch.evaluating(), torch.no_grad():
        healthy = draw.without_fault()
        found = model(_view(healthy, fresh)), model(_view(healthy, fresh))
        c = _correlation(*found)
        off = c - torch.diag(c.diagonal())
        # How alike views of one picture are, and how much numbers repeat each other.
        alike, repeated = float(c.diagonal().mean()), float(off.square().mean().sqrt())
    return Ending(alike - repeated, bar=0.3)


def _view(draw: Draw, x: Tensor) -> Tensor:
    """Return pictures [B, 1, 14, 14], shifted, darker or brighter, and noisy."""
    if draw.has("ruinous_augmentation"):
        x = x[torch.randperm(len(x))]
    by = torch.randint(-2, 3, (2,))
    x = F.pad(x, (2, 2, 2, 2), mode="replicate")
    x = x[:, :, 2 + by[0] : 16 + by[0], 2 + by[1] : 16 + by[1]]
    x = x * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1))
    return x + 0.3 * x.std() * torch.randn(x.shape)


FAMILY = Family(
    _train,
    (
        *("constant_inputs", "ruinous_augmentation", "term_left_out"),
        *("wrong_sign", "missing_step", "zero_init", "large_init", "lr_too_low"),
    ),
)
