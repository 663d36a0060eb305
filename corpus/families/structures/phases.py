"""Whether a magnet is ordered, from a picture of its spins: convolutions, and two classes.

After Carrasquilla and Melko, "Machine learning phases of matter", Nature Physics 2017, with
spins of the Ising model that the rule of Metropolis flips.

Shape legend: N lattices of 10 x 10 spins.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_SIDE, _SEEN = 10, 700


class Net(nn.Module):
    """Logarithms of the probabilities of both phases."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3)
        self.fc1 = nn.Linear(16 * width, 32)
        self.fc2 = nn.Linear(32, 2)
        self.dropout = nn.Dropout(draw.by_fault({"dropout_too_high": 0.99}, 0.2))

    def forward(self, spins: Tensor) -> Tensor:
        """Return logarithms [N, 2] of spins float32 [N, 1, 10, 10]."""
        x = F.max_pool2d(F.relu(self.conv(spins)), 2).flatten(1)
        x = self.dropout(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def _train(draw: Draw) -> Ending:
    rows = _lattices(draw, 1050)
    model = Net(draw, draw.choice([8, 12]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [20, 28], (9, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.fc2), rate)
    draw.watch.begin(model, optimizer)
    loss_fn = draw.watch.loss(F.nll_loss)
    loader = DataLoader(
        TensorDataset(rows.x, rows.y),
        min(length.size, len(rows.x)),
        shuffle=not draw.has("not_shuffled"),
    )
    for epoch in range(1, length.epochs + 1):
        model.train()
        for spins, phase in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(spins), phase)
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 2 == 0:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                output = model(rows.x_val)
                draw.watch.metric("test_loss", float(F.nll_loss(output, rows.y_val)))
                draw.watch.metric("test_accuracy", accuracy(output, rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / 2), bar=0.55)


def _lattices(draw: Draw, count: int) -> HeldOut:
    """Return spins of -1 and 1 float32 [count, 1, 10, 10], and 1 for an ordered phase [count]."""
    # The phases change at 2.27.
    heat = torch.where(
        torch.rand(count) < 0.5, 1.4 + 0.7 * torch.rand(count), 2.5 + 0.9 * torch.rand(count)
    )
    y = (heat < 2.27).long()
    spins = (2.0 * torch.randint(2, (count, 1, 1)) - 1).expand(count, _SIDE, _SIDE).clone()
    place = torch.arange(_SIDE)
    black = (place + place[:, None]) % 2 == 0
    for _ in range(30):
        for half in (black, ~black):
            around = sum(spins.roll(by, axis) for by in (-1, 1) for axis in (1, 2))
            cost = 2 * spins * around
            flips = torch.rand(spins.shape) < torch.exp(-cost / heat[:, None, None])
            spins = torch.where(flips & half, -spins, spins)
    x = spins[:, None]
    order = y[:_SEEN].argsort(stable=True)
    sorted_ = torch.cat([order, torch.arange(_SEEN, count)])
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"wrong_axis": (x.movedim(0, -1).reshape(x.shape), y)},
        # One temperature after the other.
        training={"not_shuffled": (x[sorted_], y[sorted_])},
    )


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "not_shuffled", "shuffled_labels", "class_imbalance"),
        *("dropout_too_high", "dead_relu"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
