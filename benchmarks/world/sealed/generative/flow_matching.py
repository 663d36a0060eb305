"""Points in the plane along straight paths from noise: a velocity is learned, and followed.

After Lipman et al., "Flow matching for generative modeling", ICLR 2023, and Liu, Gong and Liu,
"Flow straight and fast", ICLR 2023.

Shape legend: N points.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.world import networks
from benchmarks.world.data.plane import discrepancy, points
from benchmarks.world.draw import Draw
from benchmarks.world.epochs import fit, learning_rate, optimizer_of, plan, trained
from benchmarks.world.family import Ending, Family

_SEEN, _STEPS = 1200, 30


class Velocity(nn.Module):
    """Velocities [N, 2] of points float32 [N, 2] at times float32 [N]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(7, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()),
        )
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the velocities."""
        angle = torch.pi * time[:, None]
        told = [x, time[:, None], angle.sin(), angle.cos(), (2 * angle).sin(), (2 * angle).cos()]
        found: Tensor = self.head(self.body(torch.cat(told, 1)))
        return found


def _train(draw: Draw) -> Ending:
    x = points(draw, _SEEN + 800)
    seen = _spoilt(draw, x[:_SEEN])
    model = Velocity(draw.choice([64, 96]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [60, 80], (75, 90))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    # The number of epochs, where the number of steps is meant.
    total = length.steps // 100 if draw.has("scheduler_to_zero") else length.steps
    steps = torch.optim.lr_scheduler.PolynomialLR(optimizer, total)

    def squares(found: Tensor, wanted: Tensor) -> Tensor:
        return ((found - wanted) ** 2).sum(1).mean()

    loss = draw.watch.loss(squares)

    def compute(rows: Tensor) -> Tensor:
        points_of = seen[rows]
        noise, time = torch.randn_like(points_of), torch.rand(len(rows))
        between = (1 - time)[:, None] * noise + time[:, None] * points_of
        if draw.has("time_left_out"):
            time = torch.zeros_like(time)
        if draw.has("time_reversed"):
            time = 1 - time
        if draw.has("target_leak"):
            # Where the path ends is what the network sees.
            between = points_of
        velocity = noise - points_of if draw.has("distance_sign") else points_of - noise
        return loss(model(between, time), velocity)

    fit(draw, model, optimizer, length, compute, per_batch=steps)
    model.eval()
    with torch.no_grad():
        made = torch.randn(800, 2)
        for step in range(_STEPS):
            made = made + model(made, torch.full((800,), step / _STEPS)) / _STEPS
    if not made.isfinite().all():
        return Ending(float("nan"), bar=0.5)
    held, gaussian = x[_SEEN:], torch.randn(800, 2)
    return Ending(1 - discrepancy(made, held) / discrepancy(gaussian, held), bar=0.5)


def _spoilt(draw: Draw, x: Tensor) -> Tensor:
    """Return points with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # Pixels, and not standard deviations.
            "unnormalised_inputs": 300 + 200 * x,
            "constant_inputs": x.mean(0).expand_as(x),
            "duplicated_rows": x[torch.arange(len(x)) % 4],
            "wrong_axis": x.T.reshape(x.shape),
        },
        x,
    )


FAMILY = Family(
    _train,
    (
        *("time_left_out", "time_reversed", "target_leak", "distance_sign", "unnormalised_inputs"),
        *("duplicated_rows", "wrong_axis", "scheduler_to_zero", "zero_init", "frozen_layers"),
        *("lr_too_low", "lr_too_high"),
    ),
)
