"""How far away each pixel is, from one picture: an encoder, a decoder, and a loss without scale.

After Eigen, Puhrsch and Fergus, "Depth map prediction from a single image using a multi-scale deep
network", NeurIPS 2014; the rooms are drawn, and the sensor misses some pixels.

Shape legend: N pictures of 16 x 16 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_SIDE, _SEEN, _LEAST = 16, 500, 1e-3


class DepthNet(nn.Module):
    """Logarithms of depths in metres, float32 [N, 16, 16]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Sequential(
            *(nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1)),
            *(nn.ReLU(), nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU()),
        )
        self.up = nn.Sequential(
            *(nn.Upsample(scale_factor=4), nn.Conv2d(2 * width, width, 3, 1, 1), nn.ReLU()),
        )
        self.head = nn.Conv2d(width + 1, 1, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithms of pictures float32 [N, 1, 16, 16]."""
        found: Tensor = self.head(torch.cat([self.up(self.down(x)), x], 1))
        return found[:, 0]


def _train(draw: Draw) -> Ending:
    x, depth = _rooms(draw, 700)
    seen, known = _spoilt(draw, x[:_SEEN], depth[:_SEEN])
    model = DepthNet(draw.choice([12, 16]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [10, 12], (7, 9))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    decrease = draw.by_fault({"scheduler_to_zero": 1e-4}, 0.85)
    steps = torch.optim.lr_scheduler.ExponentialLR(optimizer, decrease)

    def scale_invariant(found: Tensor, wanted: Tensor) -> Tensor:
        there = wanted > 0
        if draw.has("invalid_pixels_kept"):
            there = torch.ones_like(there)
        off = (found - wanted.clamp(min=_LEAST).log())[there]
        if draw.has("wrong_loss"):
            # A common error of all pixels is rewarded, and not forgiven in part.
            return off.square().mean() - 2 * off.mean().square()
        return off.square().mean() - 0.5 * off.mean().square()

    loss = draw.watch.loss(scale_invariant)

    def compute(rows: Tensor) -> Tensor:
        batch, wanted = seen[rows], known[rows]
        if torch.rand(1) < 0.5:
            batch = batch.flip(3)
            wanted = wanted if draw.has("augmented_without_targets") else wanted.flip(2)
        return loss(model(batch), wanted)

    def evaluate() -> Mapping[str, float]:
        return {"abs_log": float(_errors(model(x[_SEEN:]), depth[_SEEN:]).abs().mean())}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, per_epoch=steps)
    model.eval()
    with torch.no_grad():
        off = _errors(model(x[_SEEN:]), depth[_SEEN:])
        usual = depth[:_SEEN][depth[:_SEEN] > 0].log().mean()
        trivial = _errors(usual.expand_as(depth[_SEEN:]), depth[_SEEN:])
    return Ending(1 - float(off.square().mean() / trivial.square().mean()), bar=0.5)


def _errors(found: Tensor, depth: Tensor) -> Tensor:
    """Return the errors of logarithms, of the pixels whose depth is known."""
    there = depth > 0
    return found[there] - depth[there].log()


def _spoilt(draw: Draw, x: Tensor, depth: Tensor) -> tuple[Tensor, Tensor]:
    """Return rooms with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # Bytes, which are divided by 255 in the evaluation only.
            "preprocessing_mismatch": (128 + 60 * x, depth),
            # The sensor writes millimetres.
            "unnormalised_targets": (x, 1000 * depth),
            # Both folders are listed in another order.
            "swapped_pairs": (x, depth[torch.randperm(len(depth))]),
            "nan_inputs": (torch.where(torch.rand_like(x) < 1e-4, torch.nan, x), depth),
        },
        (x, depth),
    )


def _rooms(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return pictures float32 [count, 1, 16, 16], and depths in metres, 0 where unknown."""
    down, across = torch.meshgrid(torch.arange(_SIDE), torch.arange(_SIDE), indexing="ij")
    # A floor that comes nearer, and a box that stands on it.
    wall = 4 + 3 * torch.rand(count, 1, 1)
    side = 0.12 * (2 * torch.rand(count, 1, 1) - 1)
    floor = wall * (1 - 0.045 * down + side * (across - 8) / 2)
    left, top = torch.randint(1, 10, (2, count, 1, 1))
    wide = torch.randint(4, 7, (count, 1, 1))
    box = (across >= left) & (across < left + wide) & (down >= top) & (down < top + wide)
    near = wall * (0.25 + 0.25 * torch.rand(count, 1, 1))
    depth = torch.where(box, near, floor)
    # Near objects are bright, and edges are dark.
    light = 2.5 / depth
    x = light + draw.between(0.03, 0.08) * torch.randn(count, _SIDE, _SIDE)
    seen = torch.rand(count, _SIDE, _SIDE) < 0.85
    return ((x - x.mean()) / x.std())[:, None], torch.where(seen, depth, 0.0)


FAMILY = Family(
    _train,
    (
        *("invalid_pixels_kept", "augmented_without_targets", "wrong_loss", "unnormalised_targets"),
        *("preprocessing_mismatch", "swapped_pairs", "nan_inputs", "dead_relu"),
        *("scheduler_to_zero", "lr_too_high", "wrong_parameters"),
    ),
    spent="2026-11-28",
)
