"""Shapes in noisy images, pixel by pixel, by a small U-Net.

After Ronneberger et al., "U-Net", MICCAI 2015, with the soft Dice loss of Milletari et al. (2016).

Shape legend: N images of 16 x 16 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.losses import Loss
from corpus.optimisation import Optimisation

_SIZE = 16


class UNet(nn.Module):
    """Down, up, and what was seen on the way down."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.down = _block(1, width), _block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last, self.head = _block(2 * width, width), nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, 1, 16, 16] of images [N, 1, 16, 16]."""
        wide = self.first(x)
        deep = self.down(F.max_pool2d(wide, 2))
        logits: Tensor = self.head(self.last(torch.cat([wide, self.up(deep)], 1)))
        return logits


def _block(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
    )


def _train(draw: Draw) -> Ending:
    x, y = _scenes(draw, 900)
    x_train, y_train, x_val, y_val = x[:700], y[:700], x[700:], y[700:]
    if draw.has("misaligned_targets"):
        y_train = y_train.roll((4, 4), (2, 3))
    if draw.has("shuffled_labels"):
        y_train = y_train[torch.randperm(len(y_train))]
    if draw.has("wrong_axis"):
        # `reshape` in place of a transposition: rows of pixels of several images.
        x_train, x_val = (part.permute(1, 2, 3, 0).reshape(part.shape) for part in (x_train, x_val))
    model = UNet(draw.choice([6, 8]))
    networks.spoil(draw, model)
    steps = draw.steps(150, 300)
    optimiser = Optimisation(draw, model, steps, scale=2.5, kinds=("adam", "adamw"))
    loss = draw.watch.loss(_loss(draw))
    turns = _turned if draw.has("augmented_without_targets") else None
    source = batches(draw, x_train, y_train, draw.choice([16, 24]), turns)
    half = draw.chance(0.4)

    def compute() -> Tensor:
        images, masks = next(source)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = model(images)
        return loss(logits.float(), masks)

    def evaluate() -> Mapping[str, float]:
        return {"dice": _dice(model(x_val), y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        reached = _dice(model(x_val), y_val)
    # All pixels are foreground.
    trivial = _dice(torch.ones_like(y_val), y_val)
    return Ending((reached - trivial) / (1 - trivial), bar=0.5)


def _loss(draw: Draw) -> Loss:
    """Return a loss of logits and masks, both [N, 1, 16, 16]."""
    share = draw.choice([0.0, 0.5, 1.0])
    sign = -1.0 if draw.has("term_wrong_sign") else 1.0
    share = 0.5 if draw.concerns("term_wrong_sign") else share

    def loss(logits: Tensor, masks: Tensor) -> Tensor:
        chance = logits.sigmoid()
        both = (chance * masks).sum((1, 2, 3))
        overlap = 2 * both / (chance.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)
        entropy = F.binary_cross_entropy_with_logits(logits, masks)
        return share * entropy + (1 - share) * sign * (1 - overlap.mean())

    return loss


def _scenes(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return images and masks, both [N, 1, 16, 16]: a disc or a square on a gradient of light."""
    place = (torch.arange(_SIZE) + 0.5) / _SIZE
    centre, radius = 0.25 + 0.5 * torch.rand(count, 2, 1, 1), 0.12 + 0.15 * torch.rand(count, 1, 1)
    across = (place[None, None, :] - centre[:, 0]).abs()
    down = (place[None, :, None] - centre[:, 1]).abs()
    disc = (across.square() + down.square()).sqrt() < radius
    square = torch.maximum(across, down) < radius
    masks = torch.where(torch.rand(count, 1, 1) < 0.5, disc, square).float()
    light = torch.rand(count, 1, 1) * place + torch.rand(count, 1, 1) * place[:, None]
    noise = draw.between(0.15, 0.35) * torch.randn(count, _SIZE, _SIZE)
    images = masks + light + noise
    images = (images - images.mean()) / images.std()
    return images[:, None], masks[:, None]


def _turned(images: Tensor) -> Tensor:
    """Return images turned by quarters at random; the masks stay as they were."""
    return torch.stack([one.rot90(int(torch.randint(4, ())), (1, 2)) for one in images])


def _dice(logits: Tensor, masks: Tensor) -> float:
    """Return the mean Dice coefficient of the images."""
    found = (logits > 0).double()
    both = 2 * (found * masks).sum((1, 2, 3))
    return float((both / (found.sum((1, 2, 3)) + masks.sum((1, 2, 3))).clamp(min=1)).mean())


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "augmented_without_targets", "term_wrong_sign", "wrong_axis"),
        *("shuffled_labels", "lr_too_low", "detached_graph", "wrong_parameters"),
    ),
    spent="2026-11-26",
)
