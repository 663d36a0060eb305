"""A normalizing flow of points in the plane, by affine coupling layers.

After Dinh et al., "Density estimation using Real NVP", ICLR 2017.

Shape legend: N points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.plane import gaussian_surprise, points
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation


class Coupling(nn.Module):
    """Shift and scale one coordinate by functions of the other."""

    def __init__(self, width: int, *, first: bool) -> None:
        super().__init__()
        self.kept = 0 if first else 1
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the points [N, 2], and the logarithm of the determinant [N]."""
        kept, moved = x[:, self.kept], x[:, 1 - self.kept]
        shift, raw = self.net(kept[:, None]).unbind(1)
        scale = 2 * torch.tanh(raw / 2)
        moved = moved * scale.exp() + shift
        pair = (kept, moved) if self.kept == 0 else (moved, kept)
        return torch.stack(pair, 1), scale


class Flow(nn.Module):
    """A chain of couplings."""

    def __init__(self, layers: int, width: int, *, alternate: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Coupling(width, first=place % 2 == 0 or not alternate) for place in range(layers)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the points [N, 2] of the base distribution, and the log-determinants [N]."""
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return x, total


def _train(draw: Draw) -> Ending:
    x = points(draw, 2500)
    if draw.has("unnormalised_inputs"):
        x = x * draw.extent(300, 30000)
    x_train, x_val = x[:1800], x[1800:]
    model = Flow(
        draw.choice([4, 6, 8]), draw.choice([24, 32, 48]), alternate=not draw.has("same_mask")
    )
    networks.spoil(draw, model)
    steps = draw.steps(250, 600)
    optimiser = Optimisation(
        draw, model, steps, scale=1.5, kinds=("adam", "adamw"), accumulates=False
    )
    sign = draw.by_fault({"log_det_sign": -1.0, "term_left_out": 0.0}, 1.0)

    def surprise(base: Tensor, log_det: Tensor) -> Tensor:
        return (0.5 * base.square().sum(1) - sign * log_det).mean() + math.log(2 * math.pi)

    loss = draw.watch.loss(surprise)
    source = batches(draw, x_train, x_train, draw.choice([64, 128, 256]))

    def compute() -> Tensor:
        batch, _ = next(source)
        return loss(*model(batch))

    def evaluate() -> Mapping[str, float]:
        return {"nll": float(loss(*model(x_val)))}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        base, log_det = model(x_val)
        reached = float((0.5 * base.square().sum(1) - log_det).mean()) + math.log(2 * math.pi)
    # Of a Gaussian's perplexity, the share that is saved.
    return Ending(1 - math.exp(min(5.0, reached - gaussian_surprise(x_train, x_val))), bar=0.25)


FAMILY = Family(
    _train,
    (
        *("log_det_sign", "term_left_out", "same_mask", "unnormalised_inputs", "same_batch"),
        *("lr_too_high", "lr_too_low", "late_jump", "scheduler_to_zero", "missing_zero_grad"),
        *("wrong_parameters", "frozen_layers", "zero_init", "large_init"),
    ),
    spent="2026-11-25",
)
