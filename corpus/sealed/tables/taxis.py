"""How long a taxi drives: embeddings of zones and hours, a Huber loss, accumulated gradients.

After de Brébisson et al., "Artificial neural networks applied to taxi destination prediction",
ECML/PKDD discovery challenge 2015; the rides are drawn.

Shape legend: N rides.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_ZONES, _HOURS, _SEEN, _ACCUMULATED = 12, 24, 1000, 2


class RideNet(nn.Module):
    """Standardised logarithm of a duration."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.zone = nn.Embedding(_ZONES, 6)
        self.hour = nn.Embedding(_HOURS, 4)
        self.body = nn.Sequential(
            *(nn.Linear(2 * 6 + 4 + 1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        )
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return durations [N, 1] of rides float32 [N, 4]: two zones, hour and kilometres."""
        begun, ended, hour = x[:, :3].long().unbind(1)
        parts = [self.zone(begun), self.zone(ended), self.hour(hour), x[:, 3:]]
        duration: Tensor = self.head(self.body(torch.cat(parts, 1)))
        return duration


def _train(draw: Draw) -> Ending:
    rows = _rides(draw, 1500)
    model = RideNet(draw.choice([32, 48]))
    spoil(draw, model)
    size, epochs = draw.choice([10, 16]), draw.whole(11, 14)
    draw.epoch, draw.accumulated = _SEEN // size, _ACCUMULATED
    draw.watch.expect(epochs * draw.epoch // _ACCUMULATED)
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    loss_fn = draw.watch.loss(F.smooth_l1_loss)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), size, shuffle=True, drop_last=True)
    done = 0
    for _ in range(epochs):
        model.train()
        for rides, durations in loader:
            found = model(rides)
            if draw.has("wrong_broadcast"):
                found = found[:, 0]
            loss = loss_fn(found, durations) / _ACCUMULATED
            loss.backward()
            done += 1
            if done % _ACCUMULATED == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            error = (model(rows.x_val) - rows.y_val).square().mean().sqrt()
            draw.watch.metric("rmsle", float(error))
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.55)


def _rides(draw: Draw, count: int) -> HeldOut:
    """Return rides float32 [count, 4], and standardised logarithms of durations [count, 1]."""
    zones, hour = torch.randint(_ZONES, (count, 2)), torch.randint(_HOURS, (count,))
    place = torch.rand(_ZONES, 2)
    way = (place[zones[:, 0]] - place[zones[:, 1]]).norm(dim=1) + 0.15
    way = way * (1 + 0.2 * torch.randn(count)).clamp(min=0.5)
    rush = ((hour - 8).abs() < 2) | ((hour - 17).abs() < 3)
    centre = (place - 0.5).norm(dim=1) < 0.35
    slow = rush * (centre[zones[:, 0]].float() + centre[zones[:, 1]].float())
    y = (way * (1 + 0.9 * slow)).log() + draw.between(0.1, 0.2) * torch.randn(count)
    kept = torch.cat([zones, hour[:, None]], 1).float()
    x = torch.cat([kept, (way[:, None] - way.mean()) / way.std()], 1)
    y = ((y - y.mean()) / y.std())[:, None]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Metres.
            "unnormalised_inputs": (torch.cat([kept, 1e4 * way[:, None]], 1), y),
            # Milliseconds.
            "unnormalised_targets": (x, 6e5 + 4e5 * y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "shuffled_labels", "misaligned_targets"),
        *("wrong_broadcast", "wrong_parameters", "frozen_layers", "lr_too_low", "lr_too_high"),
    ),
)
