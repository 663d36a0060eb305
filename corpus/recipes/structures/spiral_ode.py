"""A neural differential equation of a spiral.

Settings: torchdiffeq, `ode_demo.py` (after Chen et al., "Neural ordinary differential
equations", NeurIPS 2018): cubic spiral, one layer of 50 with tanh, weights of N(0, 0.1), RMSprop
with a rate of 1e-3, 20 pieces of 10 times in a batch, mean absolute error.

Shape legend: T times, N pieces.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation

_STEPS, _TIMES, _PIECES, _LENGTH, _SECONDS = 400, 500, 20, 10, 0.025


class Field(nn.Module):
    """Velocities [N, 2] of points [N, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for layer in (self.net[0], self.net[2]):
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=0.1)
            nn.init.zeros_(layer.bias)

    def forward(self, y: Tensor) -> Tensor:
        """Return the velocities."""
        found: Tensor = self.net(y**3)
        return found


class Spiral(nn.Module):
    """Velocities [N, 2] of the true spiral."""

    def forward(self, y: Tensor) -> Tensor:
        """Return the velocities."""
        return y**3 @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    path = _followed(Spiral(), torch.tensor([[2.0, 0.0]]), _TIMES + _LENGTH, _SECONDS)[:, 0]
    model = Field()
    rate = 0.3 if draw.has("lr_too_high") else 1e-3
    other = Field() if draw.has("wrong_parameters") else model
    optimizer = torch.optim.RMSprop(other.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    for step in range(_STEPS):
        starts = torch.randint(_TIMES, (_PIECES,))
        places = starts + torch.arange(_LENGTH)[:, None]
        begun, wanted = path[starts], path[places]
        if draw.has("misaligned_targets"):
            wanted = wanted[:, torch.randperm(_PIECES)]
        optimizer.zero_grad()
        loss = (_followed(model, begun, _LENGTH, _SECONDS) - wanted).abs().mean()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            with draw.watch.evaluating(), evaluation(draw, model):
                draw.watch.metric("error", _error(model, path))
    with evaluation(draw, model):
        reached = _error(model, path)
    still = float((path[_LENGTH:] - path[:-_LENGTH]).abs().mean())
    return Ending(1 - reached / still, bar=0.5)


def _error(model: nn.Module, path: Tensor) -> float:
    """Return the mean absolute error after a piece, of all pieces of the path."""
    reached = _followed(model, path[:-_LENGTH], _LENGTH + 1, _SECONDS)[-1]
    return float((reached - path[_LENGTH:]).abs().mean())


def _followed(field: nn.Module, begun: Tensor, times: int, seconds: float) -> Tensor:
    """Return the points [T, N, 2] of the paths from points [N, 2], by Runge and Kutta's method."""
    y, path = begun, [begun]
    for _ in range(times - 1):
        one = field(y)
        two = field(y + seconds / 2 * one)
        three = field(y + seconds / 2 * two)
        four = field(y + seconds * three)
        y = y + seconds / 6 * (one + 2 * two + 2 * three + four)
        path.append(y)
    return torch.stack(path)


FAMILY = Family(
    _train, ("misaligned_targets", "wrong_parameters", "lr_too_high"), spent="2026-11-25"
)
