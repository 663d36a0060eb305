"""Digits at twice the resolution, from small pictures of them.

After Shi et al., "Real-time single image and video super-resolution using an efficient
sub-pixel convolutional neural network", CVPR 2016.

Shape legend: N images.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import losses, networks
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation


class Upscaler(nn.Module):
    """What is added to the interpolated picture."""

    def __init__(self, width: int, depth: int, *, adds: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Conv2d(width, 4, 3, padding=1))
        self.shuffle = nn.PixelShuffle(2)
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        """Return pictures [N, 1, 8, 8] of small ones [N, 1, 4, 4]."""
        detail: Tensor = self.shuffle(self.net(x))
        return detail + _interpolated(x) if self.adds else detail


def _interpolated(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def _train(draw: Draw) -> Ending:
    large = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    large = large[torch.randperm(len(large))]
    small = F.avg_pool2d(large, 2)
    x, y, x_val, y_val = small[:1400], large[:1400], small[1400:], large[1400:]
    if draw.has("misaligned_targets"):
        # A crop of its own for each of the pair.
        y = y.roll((1, 1), (2, 3))
    if draw.has("shuffled_labels"):
        y = y[torch.randperm(len(y))]
    if draw.has("unnormalised_targets"):
        far = draw.extent(1e3, 1e5)
        y, y_val = y * far, y_val * far
    if draw.has("wrong_axis"):
        y = y.reshape(len(y), 1, 4, 2, 4, 2).transpose(3, 4).reshape(y.shape)
    model = Upscaler(draw.choice([16, 24]), draw.choice([1, 2]), adds=draw.chance(0.5))
    networks.spoil(draw, model)
    steps = draw.steps(300, 700)
    optimiser = Optimisation(
        draw, model, steps, scale=1.5, kinds=("adam", "adamw"), accumulates=False
    )
    loss = losses.value_loss(draw)
    source = batches(draw, x, y, draw.choice([32, 64]))

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    def error(output: Tensor) -> float:
        return float((output.double() - y_val).square().mean())

    def evaluate() -> Mapping[str, float]:
        # Pixels lie between -1 and 1.
        return {"psnr": float(10 * torch.tensor(4 / error(model(x_val))).log10())}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    mean = error(y_val.mean(0).expand_as(y_val))
    with evaluation(draw, model):
        return Ending(1 - error(model(x_val)) / mean, bar=0.5)


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "shuffled_labels", "unnormalised_targets", "wrong_axis"),
        *("wrong_loss", "zero_init", "ruinous_augmentation", "same_batch"),
        *("lr_too_high", "lr_too_low", "scheduler_per_batch", "missing_zero_grad"),
        *("weight_decay_too_high", "large_init", "detached_graph"),
    ),
    spent="2026-11-25",
)
