"""When the first wave of an earthquake arrives: a narrowing and widening network along the time.

After Zhu and Beroza, "PhaseNet: a deep-neural-network-based seismic arrival-time picking method",
Geophysical Journal International 2019; the seismograms are drawn.

Shape legend: N seismograms of 3 directions and T times.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained

_TIME, _SEEN, _NEAR = 48, 700, 2


class PhaseNet(nn.Module):
    """Scores of the time of the arrival."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv1d(3, width, 7, padding=3)
        self.down = nn.Conv1d(width, 2 * width, 7, 2, padding=3)
        self.deep = nn.Conv1d(2 * width, 2 * width, 7, padding=3)
        self.up = nn.ConvTranspose1d(2 * width, width, 4, 2, padding=1)
        self.last = nn.Conv1d(2 * width, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, T] of seismograms float32 [N, 3, T]."""
        fine = F.relu(self.enter(x))
        coarse = F.relu(self.deep(F.relu(self.down(fine))))
        scores: Tensor = self.last(torch.cat([fine, F.relu(self.up(coarse))], 1))
        return scores[:, 0]


def _train(draw: Draw) -> Ending:
    rows = _seismograms(draw, 1000)
    model = PhaseNet(draw.choice([8, 12]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (8, 10))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.last), rate)
    loss_fn = draw.watch.loss(F.cross_entropy)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for waves, arrival in loader:
            # A window that begins anywhere, and a time counted from its old beginning.
            moved = int(torch.randint(-12, 13, ()))
            scores = model(waves.roll(moved, 2) if draw.has("augmented_without_targets") else waves)
            loss = loss_fn(scores, arrival)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("val/hit_rate", _hits(model(rows.x_val), rows.y_val))
    with torch.no_grad():
        hits = _hits(model(rows.x_test), rows.y_test)
    return Ending(gained(hits, (2 * _NEAR + 1) / _TIME), bar=0.55)


def _hits(scores: Tensor, arrival: Tensor) -> float:
    """Return the share of arrivals that are found to within two times."""
    return float(((scores.argmax(1) - arrival).abs() <= _NEAR).double().mean())


def _seismograms(draw: Draw, count: int) -> HeldOut:
    """Return seismograms float32 [count, 3, T] and arrivals int64 [count]."""
    y = torch.randint(6, _TIME - 12, (count,))
    since = (torch.arange(_TIME) - y[:, None]).float()[:, None]
    strength = 0.8 + torch.rand(count, 3, 1)
    phase = 6.28 * torch.rand(count, 3, 1)
    first = (since >= 0) * torch.exp(-since.clamp(min=0) / 8) * torch.sin(1.9 * since + phase)
    # Shear waves come later, and are larger.
    later = since - 5 - 4 * torch.rand(count, 1, 1)
    second = (later >= 0) * torch.exp(-later.clamp(min=0) / 12) * torch.sin(0.9 * later + phase)
    x = strength * (first + 1.5 * second)
    x = x + draw.between(0.15, 0.25) * torch.randn(count, 3, _TIME)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Times of a catalogue with half as many of them in a second.
            "resized_labels": (x, y // 2),
            "wrong_axis": (x.transpose(1, 2).reshape(x.shape), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("resized_labels", "augmented_without_targets", "wrong_axis", "shuffled_labels"),
        *("wrong_sign", "large_init", "zero_init", "dead_relu", "not_in_optimizer"),
        *("lr_too_low",),
    ),
    spent="2026-11-28",
)
