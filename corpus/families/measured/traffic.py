"""How many cars pass several roads in the next minutes: dilated convolutions that see the past.

After Bai, Kolter and Koltun, "An empirical evaluation of generic convolutional and recurrent
networks for sequence modeling", 2018; the roads are drawn.

Shape legend: N windows of T times, R roads.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.losses import Loss

_ROADS, _TIME, _SEEN = 4, 16, 900


class TemporalBlock(nn.Module):
    """A causal convolution with a residual connection, of [N, C, T]."""

    def __init__(self, before: int, after: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.padding = dilation
        self.convolution = nn.Conv1d(before, after, 2, dilation=dilation)
        self.shortcut = nn.Conv1d(before, after, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations."""
        told = self.dropout(F.relu(self.convolution(F.pad(x, (self.padding, 0)))))
        found: Tensor = F.relu(told + self.shortcut(x))
        return found


def _train(draw: Draw) -> Ending:
    x, y = _windows(draw)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    # What the script evaluates on is made as what it trains on.
    valid = x[_SEEN:]
    if draw.has("target_leak"):
        valid, _ = _spoilt(draw, valid, y[_SEEN:])
    width, dropout = draw.choice([20, 28]), draw.by_fault({"dropout_too_high": 0.98}, 0.0)
    head = nn.Linear(width, _ROADS)
    body = nn.Sequential(
        *(TemporalBlock(_ROADS if one == 1 else width, width, one, dropout) for one in (1, 2, 4, 8))
    )
    model = nn.Sequential(body, _Last(), head)
    if draw.has("wrong_output_activation"):
        # Counts are positive, but not these standardised ones.
        model.append(nn.ReLU())
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [25, 30], (8, 11))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    usual: list[Loss] = [F.mse_loss, F.huber_loss]
    loss = draw.watch.loss(draw.choice(usual))
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(seen, known), length.size, shuffle=True, drop_last=True)
    for epoch in range(length.epochs):
        for window, wanted in loader:
            model.train()
            optimizer.zero_grad()
            lost = loss(model(window), wanted)
            lost.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if not draw.has("missing_step"):
                optimizer.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_mse", float(F.mse_loss(model(valid), y[_SEEN:])))
    model.eval()
    with torch.no_grad():
        reported, reached = (explained(model(one), y[_SEEN:]) for one in (valid, x[_SEEN:]))
    return Ending(reached, bar=0.5, overstated=reported - reached)


class _Last(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """Return the last time [N, C] of [N, C, T]."""
        return x[:, :, -1]


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return windows with the drawn fault, if there is one."""
    # The window ends after what is to be foretold.
    late = torch.cat([x[:, :, 1:], y[:, :, None]], 2)
    return draw.by_fault(
        {
            "target_leak": (late, y),
            "time_reversed": (x.flip(2), y),
            "misaligned_targets": (x, y.roll(1, 0)),
            # Times by roads is read as roads by times.
            "wrong_axis": (x.transpose(1, 2).reshape(x.shape), y),
            # Cars in an hour.
            "unnormalised_targets": (x, 600 + 400 * y),
            "nan_inputs": (torch.where(torch.rand_like(x) < 5e-4, torch.nan, x), y),
        },
        (x, y),
    )


def _windows(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return shuffled windows float32 [N, R, T] and the next values [N, R]."""
    count = _SEEN + 300
    time = torch.arange(_TIME + 1) + 500 * torch.rand(count, 1, 1)
    phase = torch.tensor(draw.numpy.uniform(0, 2 * math.pi, (_ROADS, 1)), dtype=torch.float32)
    period = torch.tensor([7.0, 9.0, 11.0, 6.0])[:, None]
    # A wave that wanders from road to road, and one of each road.
    wave = torch.sin(2 * math.pi * time / period + phase)
    wander = torch.sin(2 * math.pi * (time - 2 * torch.arange(_ROADS)[:, None]) / 13)
    x = wave + wander + draw.between(0.1, 0.25) * torch.randn(count, _ROADS, _TIME + 1)
    return x[:, :, :-1].clone(), x[:, :, -1].clone()


FAMILY = Family(
    _train,
    (
        *("target_leak", "time_reversed", "misaligned_targets", "wrong_axis", "nan_inputs"),
        *("unnormalised_targets", "wrong_output_activation", "dropout_too_high", "zero_init"),
        *("missing_step", "lr_too_high", "lr_too_low"),
    ),
    spent="2026-11-28",
)
