"""Where people on a square go next: an LSTM reads their steps, and another one goes on.

After Alahi et al., "Social LSTM: human trajectory prediction in crowded spaces", CVPR 2016; the
paths are drawn.

Shape legend: N people, T steps before, P steps after.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import blank

_BEFORE, _AFTER, _SEEN = 8, 6, 700


class Walker(nn.Module):
    """Steps that follow."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        self.embed = nn.Linear(2, size)
        self.encoder = nn.LSTM(size, size, batch_first=True)
        self.decoder = nn.LSTMCell(size, size)
        self.step = nn.Linear(size, 2)

    def forward(self, steps: Tensor) -> Tensor:
        """Return steps [N, P, 2] that follow steps float32 [N, T, 2]."""
        _, (hidden, cell) = self.encoder(self.embed(steps).relu())
        state = (hidden[0], cell[0])
        if self.draw.has("state_detached"):
            state = (hidden[0].detach(), cell[0].detach())
        if self.draw.has("state_reset"):
            state = (torch.zeros_like(hidden[0]), torch.zeros_like(cell[0]))
        last, made = steps[:, -1], []
        for _ in range(_AFTER):
            state = self.decoder(self.embed(last).relu(), state)
            last = self.step(state[0])
            made.append(last)
        return torch.stack(made, 1)


def _train(draw: Draw) -> Ending:
    rows = _people(draw, 1000)
    model = Walker(draw, draw.choice([24, 32]))
    if draw.has("large_init"):
        for one in model.parameters():
            nn.init.normal_(one, std=4.0)
    blank(draw, model)
    length = plan(draw, _SEEN, [16, 20], (8, 11))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.step), rate)

    def average_displacement(found: Tensor, wanted: Tensor) -> Tensor:
        gap = found.cumsum(1) - wanted.cumsum(1)
        return (gap.square().sum(2) + 1e-6).sqrt().mean()

    loss = draw.watch.loss(average_displacement)

    def compute(batch: Tensor) -> Tensor:
        return loss(model(rows.x[batch]), rows.y[batch])

    def evaluate() -> Mapping[str, float]:
        found, wanted = model(rows.x_val), rows.y_val
        final = (found.sum(1) - wanted.sum(1)).norm(dim=1).mean()
        return {"ADE": float(loss(found, wanted)), "FDE": float(final)}

    chosen = evaluate if draw.chance(0.8) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, clip=1.0)
    model.eval()
    with torch.no_grad():
        found = model(rows.x_test).cumsum(1)
        return Ending(explained(found.flatten(1), rows.y_test.cumsum(1).flatten(1)), bar=0.6)


def _people(draw: Draw, count: int) -> HeldOut:
    """Return steps before float32 [count, T, 2] and after [count, P, 2]."""
    heading = 6.28 * torch.rand(count, 1)
    turn, speed = 0.18 * torch.randn(count, 1), 0.6 + 0.8 * torch.rand(count, 1)
    slower = 1 - 0.05 * torch.rand(count, 1)
    time = torch.arange(_BEFORE + _AFTER)
    angle = heading + turn * time
    pace = speed * slower**time
    steps = torch.stack([pace * angle.cos(), pace * angle.sin()], 2)
    steps = steps + draw.between(0.05, 0.1) * torch.randn(steps.shape)
    x, y = steps[:, :_BEFORE], steps[:, _BEFORE:]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Positions in pixels of the film, and not steps.
            "unnormalised_inputs": (300 + 200 * torch.rand(count, 1, 2) + 20 * x.cumsum(1), y),
            # The numbers of people begin again in each film.
            "swapped_pairs": (x, y[torch.randperm(count)]),
            "time_reversed": (x.flip(1), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "unnormalised_inputs", "duplicated_rows", "nan_inputs", "large_init"),
        *("zero_init", "wrong_sign", "missing_step", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
