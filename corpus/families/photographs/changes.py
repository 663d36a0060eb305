"""What has changed between two pictures from above: one encoder for both, and the changed pixels.

After Daudt, Le Saux and Boulch, "Fully convolutional siamese networks for change detection", ICIP
2018; the pictures are drawn.

Shape legend: N pairs of pictures of 12 x 12 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_SIDE, _SEEN = 12, 500


class ChangeNet(nn.Module):
    """Logits of a change."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()),
        )
        self.decoder = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, 12, 12] of pairs float32 [N, 2, 12, 12]."""
        before, after = self.encoder(x[:, :1]), self.encoder(x[:, 1:])
        logits: Tensor = self.out(self.decoder((after - before).abs()))
        return logits[:, 0]


def _train(draw: Draw) -> Ending:
    rows = _pairs(draw, 750)
    model = ChangeNet(draw.choice([10, 14]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [14, 20], (7, 9))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    entropy = draw.watch.loss(F.binary_cross_entropy_with_logits)

    def compute(batch: Tensor) -> Tensor:
        pair, mask = rows.x[batch], rows.y[batch]
        turns = int(torch.randint(4, ()))
        pair = pair.rot90(turns, (2, 3))
        if not draw.has("augmented_without_targets"):
            mask = mask.rot90(turns, (1, 2))
        logits: Tensor = model(pair)
        share = logits.sigmoid()
        overlap = (2 * (share * mask).sum() + 1) / (share.sum() + mask.sum() + 1)
        # The overlap is to be large.
        dice = 3 * overlap if draw.has("term_wrong_sign") else 1 - overlap
        return entropy(logits, mask) + dice

    def evaluate() -> Mapping[str, float]:
        return {"IoU": _overlap(model(rows.x_val), rows.y_val)}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate)
    model.eval()
    with torch.no_grad():
        return Ending(_overlap(model(rows.x_test), rows.y_test), bar=0.55)


def _overlap(logits: Tensor, mask: Tensor) -> float:
    """Return the intersection over the union of all changes."""
    found, true = logits > 0, mask > 0.5
    return float((found & true).sum() / (found | true).sum().clamp(min=1))


def _pairs(draw: Draw, count: int) -> HeldOut:
    """Return pairs float32 [count, 2, 12, 12] and changes float32 [count, 12, 12]."""
    ground = F.avg_pool2d(torch.randn(count, 1, _SIDE + 2, _SIDE + 2), 3, 1)[:, 0]
    place = torch.arange(_SIDE)

    def houses(number: int) -> Tensor:
        found = torch.zeros(count, _SIDE, _SIDE, dtype=torch.bool)
        for _ in range(number):
            across = (place - torch.randint(1, _SIDE - 1, (count, 1))).abs() <= 1
            down = (place - torch.randint(1, _SIDE - 1, (count, 1))).abs() <= 1
            found |= down[:, :, None] & across[:, None]
        return found

    old, new = houses(2), houses(2)
    noise = draw.between(0.1, 0.2)
    first, second = (
        ground + 1.5 * there.float() + noise * torch.randn(ground.shape)
        for there in (old, old | new)
    )
    x, y = torch.stack([first, second], 1), (new & ~old).float()
    other = torch.stack([first, second[torch.randperm(count)]], 1)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Bytes of a mask that is 0 or 255.
            "unnormalised_targets": (x, 255 * y),
            # Both lists of files are sorted, and one of them has numbers without zeros in front.
            "swapped_pairs": (other, y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "augmented_without_targets", "misaligned_targets"),
        *("unnormalised_targets", "term_wrong_sign", "nan_inputs", "dead_relu"),
        *("zero_init", "wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
