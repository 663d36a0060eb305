"""How many spots the sun has next month, from those of months before: dense layers on a window.

After Weigend, Huberman and Rumelhart, "Predicting the future: a connectionist approach",
International Journal of Neural Systems 1990; the spots are drawn.

Shape legend: N windows of T months.
"""

from __future__ import annotations

import torch
from torch import nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_TIME, _SEEN, _WINDOWS = 24, 800, 1100


def _train(draw: Draw) -> Ending:
    rows = _spots(draw)
    width = draw.choice([24, 32])
    last = nn.Linear(16, 1)
    model = nn.Sequential(
        *(nn.Linear(_TIME, width), nn.ReLU(), nn.Linear(width, 16), nn.ReLU(), last)
    )
    if draw.has("wrong_output_activation"):
        # Standardised numbers are above 1, and below 0.
        model.append(nn.Softmax(dim=1))
    spoil(draw, model)
    length = plan(draw, _SEEN, [16, 25], (14, 18))
    rate = learning_rate(draw, 0.01, 0.02)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, last), rate)
    if draw.has("exploding"):
        rate = 2.0
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    huber = nn.HuberLoss()
    squares = nn.MSELoss()
    criterion = squares if draw.concerns("exploding") or draw.chance(0.5) else huber
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    best = float("inf")
    for _ in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            window, target = rows.x[picked], rows.y[picked]
            if not draw.has("missing_zero_grad"):
                optimizer.zero_grad()
            loss = criterion(model(window), target)
            loss.backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            valid = float(criterion(model(rows.x_val), rows.y_val))
            best = min(best, valid)
            draw.watch.metric("val_loss", valid)
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.5)


def _spots(draw: Draw) -> HeldOut:
    """Return standardised windows float32 [N, T] and the months after them [N, 1]."""
    months = torch.arange(_WINDOWS + _TIME)
    phase = 2 * torch.pi * months / 36 + 0.8 * torch.sin(months / 90)
    spots = (1 + torch.sin(phase)).pow(1.5) * (1 + 0.3 * torch.sin(months / 61))
    spots = spots + draw.between(0.08, 0.14) * (0.3 + spots) * torch.randn(len(months))
    spots = (spots - spots.mean()) / spots.std()
    x, y = spots.unfold(0, _TIME, 1)[:-1], spots[_TIME:, None]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "unnormalised_inputs": (8000 + 5000 * x, y),
            "unnormalised_targets": (x, 8000 + 5000 * y),
            # Two years later, by a mistake in the index.
            "wrong_shift": (x, y.roll(-18, 0)),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "wrong_shift", "shuffled_labels"),
        *("wrong_output_activation", "missing_zero_grad", "exploding", "large_init"),
        *("lr_too_low",),
    ),
    spent="2026-11-28",
)
