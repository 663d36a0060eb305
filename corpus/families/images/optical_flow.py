"""How far a picture moved, learned without answers: the second one is to look like the first.

After Yu et al., "Back to basics: unsupervised learning of optical flow via brightness constancy
and motion smoothness", ECCV workshops 2016.

Shape legend: N pairs, S pixels of a side.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, run_loop
from corpus.optimisation import Optimisation

_SIDE, _MOST = 16, 3.0


class FlowNet(nn.Module):
    """Convolutions of both pictures, to a flow in pixels at each pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            *(nn.Conv2d(2, width, 5, padding=2), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1), nn.LeakyReLU(0.1)),
            nn.Flatten(),
        )
        self.coarse = nn.Linear(32 * width, 2)
        self.fine = nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, pair: Tensor) -> Tensor:
        """Return flows [N, 2, S, S], across and down, of pairs [N, 2, S, S]."""
        first = self.encode[:2](pair)
        mean = self.coarse(self.encode[2:](first))
        flow: Tensor = mean[:, :, None, None] + 0.1 * self.fine(first)
        return flow


def _train(draw: Draw) -> Ending:
    pairs, flow = _pairs(draw, 1600)
    model = FlowNet(draw.choice([8, 12]))
    networks.spoil(draw, model)
    smooth = draw.between(0.05, 0.2)
    if draw.has("over_regularization"):
        smooth = 1.0
    steps, size = draw.steps(400, 700), draw.choice([16, 32])
    kinds = ("adam", "adamw", "rmsprop")
    optimiser = Optimisation(draw, model, steps, kinds=kinds, accumulates=False)

    def compute() -> Tensor:
        pair = pairs[torch.randint(1200, (size,))]
        found = model(pair)
        if draw.has("swapped_coordinates"):
            warped = _warped(pair[:, 1:], found.flip(1))
        elif draw.has("grid_unscaled"):
            warped = _warped(pair[:, 1:], found * _SIDE / 2)
        else:
            warped = _warped(pair[:, 1:], found)
        error = ((warped - pair[:, :1]).square() + 1e-4).sqrt().mean()
        if draw.has("term_wrong_sign"):
            error = -error
        if draw.has("term_left_out"):
            error = 0.0 * error
        rough = (found[:, :, 1:] - found[:, :, :-1]).abs().mean()
        rough = rough + (found[:, :, :, 1:] - found[:, :, :, :-1]).abs().mean()
        if draw.has("over_regularization"):
            rough = rough + 3.0 * found.square().mean()
        total: Tensor = error + smooth * rough
        return total

    def evaluate() -> Mapping[str, float]:
        found = model(pairs[1200:]).mean((2, 3))
        return {"epe": float((found - flow[1200:]).norm(dim=1).mean())}

    chosen = evaluate if draw.chance(0.5) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(explained(model(pairs[1200:]).mean((2, 3)), flow[1200:]), bar=0.55)


def _warped(image: Tensor, flow: Tensor) -> Tensor:
    """Return images [N, 1, S, S], read where flows in pixels [N, 2, S, S] point to."""
    line = torch.linspace(-1, 1, _SIDE)
    down, across = torch.meshgrid(line, line, indexing="ij")
    grid = torch.stack([across, down], 2) + flow.permute(0, 2, 3, 1) * 2 / (_SIDE - 1)
    return F.grid_sample(image, grid, align_corners=True, padding_mode="border")


def _pairs(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return pairs of smooth pictures float32 [N, 2, S, S], and the flow [N, 2] to the second."""
    wide = _SIDE + 8
    coarse = torch.randn(count, 1, wide // 4, wide // 4)
    picture = F.interpolate(coarse, (wide, wide), mode="bicubic", align_corners=True)
    flow = _MOST * (2 * torch.rand(count, 2) - 1)
    line = torch.linspace(-1, 1, _SIDE) * (_SIDE - 1) / (wide - 1)
    down, across = torch.meshgrid(line, line, indexing="ij")
    grid = torch.stack([across, down], 2).expand(count, -1, -1, -1)
    # A picture that moves by the flow is read from where it came.
    moved = grid - flow[:, None, None, :] * 2 / (wide - 1)
    both = [F.grid_sample(picture, one, align_corners=True) for one in (grid, moved)]
    pair = torch.cat(both, 1)
    return pair + 0.05 * draw.between(0.2, 1.0) * torch.randn_like(pair), flow


FAMILY = Family(
    _train,
    (
        *("swapped_coordinates", "grid_unscaled", "term_wrong_sign"),
        *("term_left_out", "over_regularization", "lr_too_low", "lr_too_high"),
        *("wrong_parameters", "scheduler_to_zero"),
    ),
    spent="2026-11-26",
)
