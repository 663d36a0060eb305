"""Clothes without the noise of their pictures: a network that says what the noise is.

After Zhang et al., "Beyond a Gaussian denoiser: residual learning of deep CNN for image denoising",
IEEE Transactions on Image Processing 2017.

Shape legend: N pictures of 14 x 14 pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.fashion import clothes
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import spoil

_SEEN = 400


class DnCNN(nn.Module):
    """The noise of pictures."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU(inplace=True)]
        for _ in range(2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers)
        self.tail = nn.Conv2d(width, 1, 3, padding=1)
        # Noise is negative, too.
        self.last = nn.ReLU() if draw.has("wrong_output_activation") else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the noise [N, 1, 14, 14] of pictures float32 [N, 1, 14, 14]."""
        noise: Tensor = self.last(self.tail(self.body(x)))
        return noise


def _train(draw: Draw) -> Ending:
    rows = _pictures(draw, 560)
    model = DnCNN(draw, draw.choice([12, 16]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [10, 16], (5, 7))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.tail), rate)
    decay = torch.optim.lr_scheduler.MultiStepLR(optimizer, [length.epochs - 2], 0.2)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for noisy, clean in loader:
            optimizer.zero_grad()
            noise = model(noisy)
            loss = criterion(noise, noisy - clean)
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        decay.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            error = (rows.x_val - model(rows.x_val) - rows.y_val).square().mean()
            draw.watch.metric("psnr", float(-10 * error.log10()))
    with torch.no_grad():
        left = (rows.x_test - model(rows.x_test) - rows.y_test).square().mean()
    # 0 for pictures that are left as they are.
    return Ending(float(1 - left / (rows.x_test - rows.y_test).square().mean()), bar=0.5)


def _pictures(draw: Draw, count: int) -> HeldOut:
    """Return noisy pictures float32 [count, 1, 14, 14], and the clean ones."""
    order = torch.tensor(draw.numpy.permutation(5000)[:count])
    clean = clothes(5000)[0][order]
    noisy = clean + draw.between(0.5, 0.7) * torch.randn(clean.shape)
    return held_out(
        *(draw, noisy, clean, _SEEN),
    )


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "wrong_output_activation", "wrong_sign"),
        *("frozen_layers", "large_init", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
