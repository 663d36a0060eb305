"""How far a thing was turned, from its points before and after: a matrix made of six numbers.

After Zhou et al., "On the continuity of rotation representations in neural networks", CVPR 2019.

Shape legend: N things of 12 points.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

# The mean angle between two random rotations, in radians.
_RANDOM_ANGLE = math.pi / 2 + 2 / math.pi


class Turns(nn.Module):
    """Rotations [N, 3, 3] of points [N, 12, 3], as orthogonal axes from two vectors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.points = nn.Sequential(nn.Flatten(), nn.Linear(36, width), nn.LeakyReLU(0.1))
        self.head = nn.Sequential(
            *(nn.Linear(width, width), nn.LeakyReLU(0.1), nn.Linear(width, 6)),
        )

    def forward(self, points: Tensor) -> Tensor:
        """Return the rotations."""
        first, second = self.head(self.points(points)).split(3, 1)
        first = F.normalize(first, dim=1)
        second = second - (first * second).sum(1, keepdim=True) * first
        second = F.normalize(second, dim=1)
        return torch.stack([first, second, torch.linalg.cross(first, second)], 2)


def _train(draw: Draw) -> Ending:
    thing, noise = torch.randn(12, 3), draw.between(0.02, 0.1)
    model = Turns(draw.choice([64, 96]))
    networks.spoil(draw, model)
    steps, size = draw.steps(700, 1000), draw.choice([48, 80])
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    optimizer = torch.optim.NAdam(model.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    halved = torch.optim.lr_scheduler.StepLR(optimizer, steps // 3, 0.5)
    if draw.has("scheduler_per_batch"):
        # Its length was meant in epochs.
        halved = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(1, steps + 1):
        points, turned = _turned(thing, size, noise)
        if draw.has("misaligned_targets"):
            turned = turned.roll(1, 0)
        if draw.has("random_points"):
            # Each thing has its points in an order of its own.
            order = torch.rand(size, 12).argsort(1)
            points = points.gather(1, order[:, :, None].expand(-1, -1, 3))
        if draw.has("constant_inputs"):
            points = torch.zeros_like(points)
        loss = (model(points) - turned).square().sum((1, 2)).mean()
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        halved.step()
        if step % 100 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                points, turned = _turned(thing, 200, noise)
                draw.watch.metric("radians", _angle(model(points), turned))
    with torch.no_grad():
        points, turned = _turned(thing, 600, noise)
        angle = _angle(model(points), turned)
    return Ending(1 - angle / _RANDOM_ANGLE, bar=0.6)


def _angle(found: Tensor, turned: Tensor) -> float:
    """Return the mean angle, in radians, between rotations."""
    cosine = ((found * turned).sum((1, 2)) - 1) / 2
    return float(torch.acos(cosine.clamp(-1, 1)).mean())


def _turned(thing: Tensor, count: int, noise: float) -> tuple[Tensor, Tensor]:
    """Return noisy points float32 [count, 12, 3] of turned things, and the rotations."""
    turns, triangle = torch.linalg.qr(torch.randn(count, 3, 3))
    turns = turns * triangle.diagonal(dim1=1, dim2=2).sign()[:, None]
    turns[:, :, 0] *= torch.linalg.det(turns).sign()[:, None]
    points = thing @ turns.mT
    return points + noise * torch.randn_like(points), turns


FAMILY = Family(
    _train,
    (
        *("random_points", "misaligned_targets", "constant_inputs"),
        *("scheduler_per_batch", "lr_too_low", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
