"""Which genre a piece of music is of: convolutions of its spectrogram, and a recurrent layer.

After Choi, Fazekas, Sandler and Cho, "Convolutional recurrent neural networks for music
classification", ICASSP 2017; the spectrograms are drawn.

Shape legend: N pieces of M bands and T times.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_BANDS, _TIME, _GENRES, _SEEN = 16, 24, 5, 600


class CRNN(nn.Module):
    """Scores of genres."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            *(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ELU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ELU()),
            nn.MaxPool2d((4, 1)),
        )
        self.gru = nn.GRU(2 * width, 32, batch_first=True)
        self.dropout = nn.Dropout(draw.by_fault({"dropout_too_high": 0.97}, 0.3))
        self.fc = nn.Linear(32, _GENRES)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, 5] of spectrograms float32 [N, 1, M, T]."""
        maps = self.conv(x)
        steps = maps.permute(0, 3, 1, 2).flatten(2)
        scores: Tensor = self.fc(self.dropout(self.gru(steps)[0][:, -1]))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _pieces(draw, 900)
    model = CRNN(draw, draw.choice([8, 12]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [16, 20], (6, 8))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.fc), rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        loss: Tensor = criterion(model(rows.x[batch]), rows.y[batch])
        return loss

    def evaluate() -> Mapping[str, float]:
        scores = model(rows.x_val)
        return {
            "validation/loss": float(criterion(scores, rows.y_val)),
            "validation/accuracy": accuracy(scores, rows.y_val),
        }

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, per_epoch=schedule)
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _GENRES), bar=0.6)


def _pieces(draw: Draw, count: int) -> HeldOut:
    """Return standardised spectrograms float32 [count, 1, M, T] and genres int64 [count]."""
    y = torch.randint(_GENRES, (count,))
    time, band = torch.arange(_TIME), torch.arange(_BANDS)[:, None]
    # Each genre has its beat, and where its melody lies.
    beats = torch.tensor([3, 4, 6, 4, 8])[y][:, None, None]
    low = torch.tensor([2, 3, 2, 9, 9])[y][:, None, None] + torch.randint(3, (count, 1, 1))
    begin = torch.randint(8, (count, 1, 1))
    drum = ((time + begin) % beats == 0).float() * torch.exp(-band / 5.0)
    walk = (torch.randn(count, 1, _TIME) * 0.8).cumsum(2).clamp(-3, 3)
    tune = torch.exp(-((band - low - walk) / 1.2).square())
    x = 1.4 * drum + tune + draw.between(0.25, 0.4) * torch.randn(count, _BANDS, _TIME)
    x = ((x - x.mean()) / x.std())[:, None]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Values of the files without a logarithm.
            "unnormalised_inputs": (torch.exp(4 * x), y),
            "wrong_axis": (x.movedim(0, -1).reshape(x.shape), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "unnormalised_inputs", "label_noise"),
        *("dropout_too_high", "weight_decay_too_high", "frozen_layers", "scheduler_per_batch"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
