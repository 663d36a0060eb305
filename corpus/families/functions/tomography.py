"""A slice of a body from its shadows: the picture itself is what is trained.

After Radon, 1917, and Rudin, Osher and Fatemi, "Nonlinear total variation based noise removal
algorithms", Physica D 1992.

Shape legend: A angles, B beams of each, S rows and columns of the picture.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_SIDE, _ANGLES, _BEAMS = 20, 36, 24


class Slice(nn.Module):
    """A density [S, S], and its shadows [A, B] along lines [A, B, S * S]."""

    def __init__(self, lines: Tensor) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.full((_SIDE, _SIDE), -2.0))
        self.register_buffer("lines", lines)

    def density(self) -> Tensor:
        """Return the density, which is not negative."""
        return F.softplus(self.raw)

    def forward(self) -> Tensor:
        """Return the shadows."""
        lines = self.get_buffer("lines")
        return lines @ self.density().flatten()


def _train(draw: Draw) -> Ending:
    truth = _body(draw)
    angles = torch.arange(_ANGLES) * math.pi / _ANGLES
    lines = _lines(angles)
    shadows = lines @ truth.flatten()
    shadows = shadows + draw.between(0.05, 0.15) * torch.randn_like(shadows)
    shadows, lines = _spoilt(draw, shadows, angles, lines)
    model = Slice(lines)
    if draw.has("large_init"):
        nn.init.normal_(model.raw, -200.0, 50.0)
    steps = draw.steps(250, 350)
    rate = draw.between(0.05, 0.1)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    price = draw.between(0.005, 0.01)
    price *= draw.by_fault({"prior_too_high": 1e5, "term_wrong_sign": -1e3}, 1.0)
    order = torch.randperm(_ANGLES)
    for step in range(steps):
        # Shadows of some angles at a time.
        some = order[torch.arange(9) + 9 * (step % 4)]
        loss = F.mse_loss(model()[some], shadows[some]) + price * _roughness(model.density())
        if not draw.has("missing_zero_grad"):
            optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if step % 50 == 49:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("residual", float((model() - shadows).square().mean()))
    with torch.no_grad():
        found = model.density()
    return Ending(max(-1.0, explained(found.reshape(-1, 1), truth.reshape(-1, 1))), bar=0.6)


def _roughness(density: Tensor) -> Tensor:
    return density.diff(dim=0).abs().mean() + density.diff(dim=1).abs().mean()


def _spoilt(draw: Draw, shadows: Tensor, angles: Tensor, lines: Tensor) -> tuple[Tensor, Tensor]:
    """Return shadows and the lines of their beams with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # Degrees, where radians are wanted.
            "angles_unscaled": (shadows, _lines(angles * 180 / math.pi)),
            # The table turns the other way, and began elsewhere.
            "reversed_scale": (shadows, _lines(math.pi / 3 - angles)),
            "misaligned_targets": (shadows[torch.randperm(_ANGLES)], lines),
            "wrong_axis": (shadows.T.reshape(shadows.shape), lines),
            # Counts of the detector.
            "unnormalised_targets": (4000 * shadows + 1e4, lines),
            # The middle of the detector is not in the middle.
            "off_by_one": (shadows.roll(3, 1), lines),
        },
        (shadows, lines),
    )


def _lines(angles: Tensor) -> Tensor:
    """Return how much of each cell the beams cross, float32 [A, B, S * S]."""
    place = torch.linspace(-1, 1, _SIDE)
    y, x = torch.meshgrid(place, place, indexing="ij")
    along = torch.cos(angles)[:, None, None] * x + torch.sin(angles)[:, None, None] * y
    beam = torch.linspace(-1.3, 1.3, _BEAMS)[:, None, None]
    near = (1 - (along[:, None] - beam).abs() / (2.6 / _BEAMS)).clamp(min=0)
    return near.flatten(2)


def _body(draw: Draw) -> Tensor:
    """Return a density float32 [S, S] of some discs."""
    place = torch.linspace(-1, 1, _SIDE)
    y, x = torch.meshgrid(place, place, indexing="ij")
    body = torch.zeros(_SIDE, _SIDE)
    for _ in range(draw.choice([4, 5, 6])):
        top, left = draw.random.uniform(-0.6, 0.6), draw.random.uniform(-0.6, 0.6)
        inside = (x - left).square() + (y - top).square() < draw.between(0.15, 0.35) ** 2
        body += inside * draw.between(0.5, 1.0)
    return body


FAMILY = Family(
    _train,
    (
        *("angles_unscaled", "reversed_scale", "prior_too_high", "term_wrong_sign"),
        *("misaligned_targets", "wrong_axis", "unnormalised_targets", "off_by_one"),
        *("missing_zero_grad", "lr_too_low", "lr_too_high", "wrong_sign", "large_init"),
    ),
    spent="2026-11-27",
)
