"""Photographs without their grain: a network that predicts the noise, which is subtracted.

After Zhang et al., "Beyond a Gaussian denoiser: residual learning of deep CNN for image denoising",
IEEE Transactions on Image Processing 2017; the photographs are drawn.

Shape legend: N pictures of 16 x 16 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import blank

_SIDE, _SEEN = 16, 400


class DnCNN(nn.Module):
    """Noise in pictures."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.middle = nn.Sequential(
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
        )
        self.last = nn.Conv2d(width, 1, 3, padding=1)
        # Noise is negative, too.
        self.out = nn.ReLU() if draw.has("wrong_output_activation") else nn.Identity()

    def forward(self, noisy: Tensor) -> Tensor:
        """Return noise of pictures, both float32 [N, 1, 16, 16]."""
        noise: Tensor = self.out(self.last(self.middle(F.relu(self.first(noisy)))))
        return noise


def _train(draw: Draw) -> Ending:
    rows = _photographs(draw, 600)
    model = DnCNN(draw, draw.choice([10, 12]))
    blank(draw, model)
    length = plan(draw, _SEEN, [10, 12], (6, 8))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.last), rate)
    steps = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.4)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        noisy, clean = rows.x[batch], rows.y[batch]
        # The network predicts the noise, which is subtracted.
        wanted = clean - noisy if draw.has("term_wrong_sign") else noisy - clean
        loss: Tensor = criterion(model(noisy), wanted)
        return loss

    def evaluate() -> Mapping[str, float]:
        error = F.mse_loss(rows.x_val - model(rows.x_val), rows.y_val)
        return {"psnr": float(-10 * error.log10())}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, per_epoch=steps)
    model.eval()
    with torch.no_grad():
        left = F.mse_loss(rows.x_test - model(rows.x_test), rows.y_test)
        scale = (rows.x_test - rows.y_test).square().mean()
        # An eighth of the noise stays in the best ones.
        return Ending(float(1 - left / scale) / 0.9, bar=0.55)


def _photographs(draw: Draw, count: int) -> HeldOut:
    """Return noisy and clean pictures, each float32 [count, 1, 16, 16]."""
    coarse = F.interpolate(torch.randn(count, 1, 4, 4), size=_SIDE, mode="bilinear")
    place = torch.arange(_SIDE) - _SIDE / 2
    turn = 3.14 * torch.rand(count, 1, 1)
    edge = place * turn.cos() + place[:, None] * turn.sin() > 6 * torch.rand(count, 1, 1) - 3
    clean = 0.5 + 0.12 * coarse + 0.25 * (edge.float()[:, None] - 0.5)
    noisy = clean + draw.between(0.18, 0.22) * torch.randn(clean.shape)
    return held_out(
        *(draw, noisy, clean, _SEEN),
        prepared={
            # Files of two folders, which are not in the same order.
            "swapped_pairs": (noisy, clean[torch.randperm(count)]),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "term_wrong_sign", "wrong_output_activation"),
        *("zero_init", "nan_inputs", "scheduler_per_batch", "missing_step", "not_in_optimizer"),
        *("wrong_sign", "lr_too_low"),
    ),
    spent="2026-11-28",
)
