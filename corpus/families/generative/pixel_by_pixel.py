"""Small digits, one pixel after the other, by convolutions that see what came before.

After van den Oord, Kalchbrenner and Kavukcuoglu, "Pixel recurrent neural networks", ICML 2016.

Shape legend: N digits, 8 rows and columns.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family


class Before(nn.Conv2d):
    """A convolution of 5 by 5 pixels that sees those before its own, and its own or not."""

    mask: Tensor

    def __init__(self, inputs: int, outputs: int, *, own: bool, masked: bool) -> None:
        super().__init__(inputs, outputs, 5, padding=2)
        mask = torch.ones(5, 5)
        if masked:
            mask[2, 2 + own :] = 0
            mask[3:] = 0
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs [N, outputs, 8, 8]."""
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=2)


def _train(draw: Draw) -> Ending:
    images = torch.tensor(datasets.load_digits().images, dtype=torch.float32)[:, None]
    dots = (images > 7).float()
    seen, held = dots[:1300], dots[1300:]
    if draw.has("same_batch"):
        seen = seen[:13].repeat(100, 1, 1, 1)
    if draw.has("ruinous_augmentation"):
        places = torch.rand(len(seen), 64).argsort(1)
        seen = seen.flatten(1).gather(1, places).view_as(seen)
    width, masked = draw.choice([16, 24]), not draw.has("no_causal_mask")
    layers: list[nn.Module] = [Before(1, width, own=False, masked=masked), nn.ReLU()]
    for _ in range(draw.choice([1, 2])):
        layers += [Before(width, width, own=True, masked=masked), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(width, 1, 1))
    networks.spoil(draw, model)
    size, epochs = draw.choice([50, 65]), draw.whole(18, 26)
    draw.epoch = 1300 // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 500.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    jump = draw.amount.uniform(0.4, 0.6) * epochs
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        if draw.has("late_jump") and epoch > jump:
            optimizer.param_groups[0]["lr"] = 3.0
        for rows in torch.randperm(1300).split(size):
            batch = seen[rows]
            scores = model(batch)
            if draw.has("sigmoid_before_logits"):
                scores = scores.sigmoid()
            if draw.has("wrong_loss"):
                loss = (scores - batch).mean()
            else:
                loss = F.binary_cross_entropy_with_logits(scores, batch)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        with draw.watch.evaluating(), torch.no_grad():
            bits = F.binary_cross_entropy_with_logits(model(held), held)
            draw.watch.metric("val_bits", float(bits) / 0.6931)
    return Ending(_known_from_before(model, held), bar=0.4)


@torch.no_grad()
def _known_from_before(model: nn.Module, held: Tensor) -> float:
    """Return how much of the entropy of each pixel alone those before it save; 1 for 0.3 of it."""
    alone = F.binary_cross_entropy(held.mean(0).expand_as(held), held)
    scores = torch.zeros_like(held)
    for row in range(8):
        for column in range(8):
            known = held.clone()
            known[:, :, row, column:] = 0
            known[:, :, row + 1 :] = 0
            scores[:, :, row, column] = model(known)[:, :, row, column]
    lost = F.binary_cross_entropy_with_logits(scores, held)
    return max(-1.0, float(1 - lost / alone) / 0.3) if lost.isfinite() else -1.0


FAMILY = Family(
    _train,
    (
        *("no_causal_mask", "sigmoid_before_logits", "wrong_loss", "same_batch"),
        *("ruinous_augmentation", "lr_too_low", "lr_too_high", "late_jump", "wrong_sign"),
        *("zero_init", "large_init"),
    ),
    spent="2026-11-27",
)
