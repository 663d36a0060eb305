"""Stars, galaxies or quasars from their colours: dense layers, batch norm, weights of the classes.

After Abolfathi et al., "The fourteenth data release of the Sloan Digital Sky Survey",
Astrophysical Journal Supplement 2018; the objects are drawn.

Shape legend: N objects, F magnitudes.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_BANDS, _KINDS, _SEEN = 6, 3, 900
_SHARES = (0.72, 0.2, 0.08)


def _train(draw: Draw) -> Ending:
    rows = _objects(draw, 1400)
    width = draw.choice([24, 32])
    head = nn.Linear(width, _KINDS)
    model = nn.Sequential(
        *(nn.Linear(_BANDS, width), nn.BatchNorm1d(width), nn.ReLU()),
        *(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()),
        head,
    )
    spoil(draw, model)
    if draw.has("identical_units"):
        for one in model.modules():
            if isinstance(one, nn.Linear):
                nn.init.constant_(one.weight, 0.1)
                nn.init.zeros_(one.bias)
    length = plan(draw, len(rows.x), [20, 30], (8, 11))
    rate = learning_rate(draw, 2e-3, 5e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate, 1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    share = torch.bincount(rows.y, minlength=_KINDS) / len(rows.y)
    weights = 1 / share.clamp(min=1e-3)
    if draw.has("weights_reversed"):
        weights = share
    criterion = nn.CrossEntropyLoss(weight=weights / weights.mean())
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    # The file has the stars first, then the galaxies.
    order = rows.y.argsort(stable=True)
    data = TensorDataset(rows.x[order], rows.y[order])
    shuffle = not draw.has("not_shuffled")
    loader = DataLoader(data, length.size, shuffle=shuffle, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            scores = model(rows.x_val)
            draw.watch.metric("val_loss", float(criterion(scores, rows.y_val)))
            draw.watch.metric("balanced_acc", accuracy(scores, rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.55)


def _objects(draw: Draw, count: int) -> HeldOut:
    """Return standardised magnitudes float32 [count, F] and kinds int64 [count]."""
    y = torch.multinomial(torch.tensor(_SHARES), count, replacement=True)
    # Each kind has objects of two temperatures.
    centre = 1.1 * torch.randn(2 * _KINDS, _BANDS)
    x = centre[2 * y + torch.randint(2, (count,))] + 0.7 * torch.randn(count, 1)
    x = x + draw.between(0.5, 0.7) * torch.randn(count, _BANDS)
    x = (x - x.mean(0)) / x.std(0)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"wrong_axis": (x.T.reshape(x.shape), y)},
    )


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "wrong_axis", "weights_reversed", "not_shuffled"),
        *("identical_units", "wrong_parameters", "adam_epsilon", "lr_too_low"),
    ),
)
