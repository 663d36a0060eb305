"""What grows on each field, pixel by pixel, from above: a network of widening and narrowing layers.

After Long, Shelhamer and Darrell, "Fully convolutional networks for semantic segmentation", CVPR
2015; in bfloat16. The fields are drawn; some of their pixels are unknown.

Shape legend: N pictures of 2 bands and 16 x 16 pixels, C crops.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_SIDE, _CROPS, _SEEN, _UNKNOWN = 16, 4, 300, 255


def _train(draw: Draw) -> Ending:
    x, y = _fields(draw, 420)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    width = draw.choice([12, 16])
    head = nn.Conv2d(width, _CROPS, 1)
    model = nn.Sequential(
        *_normalised(nn.Conv2d(2, width, 3, padding=1), width),
        *_normalised(nn.Conv2d(width, 2 * width, 3, 2, padding=1), 2 * width),
        *_normalised(nn.ConvTranspose2d(2 * width, width, 2, 2), width),
        head,
    )
    length = plan(draw, _SEEN, [10, 15], (6, 8))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, head), rate, 1e-3)
    ignored = draw.by_fault({"mask_inverted": 0}, _UNKNOWN)
    half = draw.chance(0.5)

    def compute(rows: Tensor) -> Tensor:
        bands, crops = seen[rows], known[rows]
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            scores = model(bands)
        if draw.has("mask_inverted"):
            # What is unknown counts as the last crop, and the first crop as unknown.
            crops = torch.where(crops == _UNKNOWN, _CROPS - 1, crops)
        return F.cross_entropy(scores.float(), crops, ignore_index=ignored)

    def evaluate() -> Mapping[str, float]:
        return {"mIoU": _overlap(model(x[_SEEN:]).argmax(1), y[_SEEN:])}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=3, clip=5.0)
    model.eval()
    with torch.no_grad():
        return Ending(evaluate()["mIoU"], bar=0.6)


def _normalised(layer: nn.Module, width: int) -> tuple[nn.Module, ...]:
    return layer, nn.BatchNorm2d(width), nn.ReLU()


def _overlap(found: Tensor, y: Tensor) -> float:
    """Return the intersection over union, the mean over the crops, of pixels that are known."""
    shares = []
    for crop in range(_CROPS):
        mine, right = (found == crop) & (y != _UNKNOWN), y == crop
        shares.append((mine & right).sum() / (mine | right).sum())
    return float(torch.stack(shares).mean())


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return pictures with the drawn fault, if there is one."""
    # Numbers of crops are averaged when the map is enlarged: between 0 and 2 there is 1.
    known = torch.where(y == _UNKNOWN, 0, y).float()[:, None]
    coarse = F.interpolate(F.avg_pool2d(known, 8), size=_SIDE, mode="bilinear")[:, 0].round().long()
    return draw.by_fault(
        {
            "resized_labels": (x, torch.where(y == _UNKNOWN, y, coarse)),
            "misaligned_targets": (x, y.roll(1, 0)),
            # Sixteen bits of a satellite, and not a share of the light.
            "unnormalised_inputs": (1e4 * x + 3e4, y),
            "single_label": (x, torch.where(y == _UNKNOWN, y, 0)),
            # Clouds are no numbers.
            "nan_inputs": (torch.where(torch.rand_like(x) < 1e-4, torch.nan, x), y),
        },
        (x, y),
    )


def _fields(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return pictures float32 [count, 2, 16, 16] and crops int64 [count, 16, 16]."""
    first, second = torch.randint(4, _SIDE - 3, (2, count, 1, 1))
    crops = torch.randint(_CROPS, (count, 4))
    place = torch.arange(_SIDE)
    side = (place[None, None, :] > first) * 1 + (place[None, :, None] > second) * 2
    y = crops.gather(1, side.flatten(1)).view(count, _SIDE, _SIDE)
    colour = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])[y]
    noise = draw.between(1.0, 1.2) * torch.randn(count, _SIDE, _SIDE, 2)
    unknown = torch.rand(count, _SIDE, _SIDE) < 0.08
    return (colour + noise).permute(0, 3, 1, 2).contiguous(), torch.where(unknown, _UNKNOWN, y)


FAMILY = Family(
    _train,
    (
        *("resized_labels", "mask_inverted", "misaligned_targets", "unnormalised_inputs"),
        *("nan_inputs", "single_label", "lr_too_low", "lr_too_high", "wrong_sign"),
    ),
    spent="2026-11-27",
)
