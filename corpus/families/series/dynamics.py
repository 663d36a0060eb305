"""A vector field, learned from trajectories that an integrator follows through it.

After Chen et al., "Neural ordinary differential equations", NeurIPS 2018, with Euler's method or
a Runge-Kutta method of second order, and gradients through the steps.

Shape legend: N trajectories, T times.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, run_loop
from corpus.optimisation import Optimisation

_TIMES, _STEP = 10, 0.15


class Field(nn.Module):
    """Speed [N, 2] at places [N, 2], and the trajectories that follow from it."""

    def __init__(self, width: int, *, midpoint: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )
        self.midpoint = midpoint

    def forward(self, start: Tensor, step: float) -> Tensor:
        """Return trajectories [N, T, 2] from starts [N, 2]."""
        place, places = start, []
        for _ in range(_TIMES):
            speed = self.net(place)
            if self.midpoint:
                speed = self.net(place + 0.5 * step * speed)
            place = place + step * speed
            places.append(place)
        return torch.stack(places, 1)


def _train(draw: Draw) -> Ending:
    starts, paths = _trajectories(draw, 600)
    known, kept = slice(0, draw.choice([64, 200, 400])), slice(450, 600)
    inputs, wanted = starts[known], paths[known]
    if draw.has("shuffled_labels"):
        wanted = wanted[torch.randperm(len(wanted))]
    if draw.has("misaligned_targets"):
        wanted = wanted.flip(1)
    if draw.has("nan_inputs"):
        wanted = torch.where(torch.rand(len(wanted), 1, 1) < 0.02, torch.nan, wanted)
    model = Field(draw.choice([32, 48]), midpoint=draw.chance(0.5))
    networks.spoil(draw, model)
    steps, size = draw.steps(250, 500), draw.choice([32, 64])
    optimiser = Optimisation(
        draw, model, steps, scale=2.0, kinds=("adam", "adamw", "rmsprop"), accumulates=False
    )

    def compute() -> Tensor:
        rows = torch.randint(len(inputs), (size,))
        found, truth = model(inputs[rows], _STEP), wanted[rows]
        error: Tensor = (found - truth).square().mean()
        return error

    run_loop(draw, model, optimiser, steps, compute=compute)
    with evaluation(draw, model):
        found = model(starts[kept], _STEP).nan_to_num(1e6, 1e6, -1e6)
        moved, truth = (one - starts[kept][:, None] for one in (found, paths[kept]))
    return Ending(explained(moved.flatten(1), truth.flatten(1)), bar=0.8)


def _trajectories(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return starts [N, 2] and places [N, T, 2] of a damped or a limit cycle."""
    kind, pace = draw.choice(["spiral", "van der pol"]), draw.between(0.7, 1.3)
    place = 3 * torch.rand(count, 2) - 1.5
    start, fine, places = place, 20, []
    for tick in range(_TIMES * fine):
        x, y = place.unbind(1)
        if kind == "spiral":
            cube = place**3
            speed = torch.stack([-0.1 * cube[:, 0] + 2 * cube[:, 1], -2 * cube[:, 0]], 1)
        else:
            speed = torch.stack([y, (1 - x**2) * y - x], 1)
        place = place + _STEP / fine * pace * speed.clamp(-5, 5)
        if tick % fine == fine - 1:
            places.append(place)
    paths = torch.stack(places, 1)
    return start, paths + draw.between(0.005, 0.03) * torch.randn_like(paths)


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "shuffled_labels", "nan_inputs", "lr_too_low"),
        *("late_jump", "wrong_sign", "zero_init", "saturation"),
        *("frozen_layers",),
    ),
    spent="2026-11-26",
)
