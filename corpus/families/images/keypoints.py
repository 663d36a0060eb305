"""Where two marks are in an image, by a map of their likely places.

After Tompson et al., "Joint training of a convolutional network and a graphical model for human
pose estimation", NeurIPS 2014.

Shape legend: N images, K marks, S pixels of a side.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, gained
from corpus.optimisation import Optimisation

_SIDE = 20


def _train(draw: Draw) -> Ending:
    x, places = _images(draw, draw.choice([400, 600]) + 200)
    kept = len(x) - 200
    known = places[:kept].clone()
    if draw.has("swapped_coordinates"):
        known = known.flip(2)
    if draw.has("levels_swapped"):
        # The names of the marks are exchanged in some of the files.
        some = torch.rand(kept) < 0.6
        known[some] = known[some].flip(1)
    inputs = x[:kept]
    spread = draw.between(1.2, 1.8)
    maps = _maps(known, spread)
    if draw.has("misaligned_targets"):
        # Augmented images and their maps were written to lists of another order.
        maps = maps.roll(1, dims=0)
    if draw.has("shuffled_labels"):
        maps = maps[torch.randperm(kept)]
    width = draw.choice([12, 16])
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 5, padding=2), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.Conv2d(width, width, 5, padding=2), nn.BatchNorm2d(width), nn.ReLU()),
        nn.Conv2d(width, 2, 3, padding=1),
    )
    networks.spoil(draw, model)
    size, epochs = draw.choice([16, 32]), draw.whole(10, 16)
    draw.epoch = kept // size
    steps = epochs * draw.epoch
    draw.watch.expect(steps)
    kinds = ("adam", "adamw", "rmsprop")
    optimiser = Optimisation(draw, model, steps, scale=2.0, kinds=kinds, accumulates=False)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimiser.optimizer)
    data = TensorDataset(inputs, maps)
    loader = DataLoader(data, batch_size=size, shuffle=True, drop_last=True)
    reports = draw.chance(0.6)
    for _ in range(epochs):
        for batch, wanted in loader:
            optimiser.step(
                lambda batch=batch, wanted=wanted: 100 * criterion(model(batch), wanted)  # type: ignore[misc]
            )
        if reports:
            with draw.watch.evaluating(), evaluation(draw, model):
                draw.watch.metric("pck", _near(model(x[kept:]), places[kept:]))
            model.train()
    with evaluation(draw, model):
        # Chance is the best single place.
        return Ending(gained(_near(model(x[kept:]), places[kept:]), 0.06), bar=0.65)


def _near(maps: Tensor, places: Tensor) -> float:
    """Return the share of marks whose highest place is at most 1.5 pixels away."""
    best = (maps + 1e-7 * torch.rand_like(maps)).nan_to_num(0.0).flatten(2).argmax(2)
    found = torch.stack([best // _SIDE, best % _SIDE], 2)
    return float(((found - places).double().norm(dim=2) <= 1.5).double().mean())


def _maps(places: Tensor, spread: float) -> Tensor:
    """Return maps float32 [N, K, S, S] with a hill at each place."""
    line = torch.arange(_SIDE)
    down = (line - places[:, :, :1]).square()[:, :, :, None]
    across = (line - places[:, :, 1:]).square()[:, :, None, :]
    return (-(down + across) / (2 * spread**2)).exp()


def _images(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return images float32 [N, 1, S, S] of a cross and a ring, and their places [N, K, 2]."""
    places = torch.randint(3, _SIDE - 3, (count, 2, 2))
    cross, ring = torch.zeros(5, 5), torch.ones(5, 5)
    cross[2], cross[:, 2] = 1.0, 1.0
    ring[1:4, 1:4] = 0.0
    x = draw.between(0.15, 0.3) * torch.randn(count, 1, _SIDE, _SIDE)
    for image, both in zip(x, places.tolist(), strict=True):
        for (top, left), shape in zip(both, (cross, ring), strict=True):
            image[0, top - 2 : top + 3, left - 2 : left + 3] += shape
    return x, places


FAMILY = Family(
    _train,
    (
        *("swapped_coordinates", "misaligned_targets"),
        *("levels_swapped", "shuffled_labels", "lr_too_low", "lr_too_high", "wrong_sign"),
        *("not_in_optimizer", "zero_init"),
    ),
    spent="2026-11-26",
)
