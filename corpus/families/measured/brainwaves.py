"""What a person imagines to move, from electrodes: convolutions in time, then in space.

After Lawhern et al., "EEGNet: a compact convolutional neural network for EEG-based brain-computer
interfaces", Journal of Neural Engineering 2018; the recordings are drawn.

Shape legend: N trials of E electrodes and T times, C movements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_ELECTRODES, _TIME, _KINDS, _SEEN = 6, 48, 3, 800


class EEGNet(nn.Module):
    """Scores of movements."""

    def __init__(self, draw: Draw, filters: int) -> None:
        super().__init__()
        dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.2)
        self.temporal = nn.Conv2d(1, filters, (1, 9), padding=(0, 4), bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.spatial = nn.Conv2d(filters, 2 * filters, (_ELECTRODES, 1), groups=filters, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * filters)
        self.pool, self.dropout = nn.AvgPool2d((1, 8)), nn.Dropout(dropout)
        self.classify = nn.Linear(2 * filters * _TIME // 8, _KINDS)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, C] of trials float32 [N, E, T]."""
        told = self.bn1(self.temporal(x[:, None]))
        told = self.bn2(self.spatial(told))
        told = self.pool(told.square().clamp(max=20))
        scores: Tensor = self.classify(self.dropout(told).flatten(1))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _trials(draw, 1200)
    model = EEGNet(draw, draw.choice([6, 8]))
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (8, 10))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.classify), rate)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        loss: Tensor = criterion(model(rows.x[batch]), rows.y[batch])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"kappa": gained(accuracy(model(rows.x_val), rows.y_val), 1 / _KINDS)}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate)
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.55)


def _trials(draw: Draw, count: int) -> HeldOut:
    """Return trials float32 [count, E, T] and movements int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    time = torch.arange(_TIME) / _TIME
    phase = 2 * math.pi * torch.rand(count, 2, 1)
    alpha = torch.sin(2 * math.pi * 8 * time + phase[:, 0])
    beta = torch.sin(2 * math.pi * 15 * time + phase[:, 1])
    # A rhythm that is weaker over one half of the head, or another one over the whole.
    left = torch.tensor([1.0, 1, 1, 0, 0, 0])
    strong = torch.stack([left, 1 - left, torch.full((_ELECTRODES,), 0.2)])[y]
    other = torch.where(y == 2, 0.8, 0.1)[:, None, None]
    x = 1.3 * strong[:, :, None] * alpha[:, None] + other * beta[:, None]
    x = x + draw.between(1.8, 2.4) * torch.randn(count, _ELECTRODES, _TIME)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Volts, and not microvolts.
            "unnormalised_inputs": (1e-6 * x, y),
            # The window begins before the cue: the rhythms come after its end.
            "ruinous_window": (
                torch.cat([torch.randn(count, _ELECTRODES, 44), x[:, :, :4]], 2),
                y,
            ),
            # Times by electrodes is read as electrodes by times.
            "wrong_axis": (x.movedim(0, -1).reshape(x.shape), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "ruinous_window", "wrong_axis", "shuffled_labels"),
        *("label_noise", "duplicated_rows", "dropout_too_high", "zero_init", "same_batch"),
        *("lr_too_low",),
    ),
    spent="2026-11-28",
)
