"""A convolutional GAN of digits.

Settings: pytorch/examples, `dcgan` (after Radford et al., ICLR 2016): weights of N(0, 0.02),
batch norm, Adam with betas 0.5 and 0.999 and a batch of 64. The images have 8 x 8 pixels, the
networks two convolutions, and the rate is 1e-3 instead of 2e-4, for fewer steps.

Shape legend: N images.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.bundled import digits
from corpus.data.plane import discrepancy
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family

_STEPS, _CODE = 500, 24


def _generator() -> nn.Module:
    """Return a network of images [N, 1, 8, 8] from noise [N, 24, 1, 1]."""
    return nn.Sequential(
        nn.ConvTranspose2d(_CODE, 48, 4, bias=False),
        *(nn.BatchNorm2d(48), nn.ReLU()),
        nn.ConvTranspose2d(48, 1, 4, stride=2, padding=1, bias=False),
        nn.Tanh(),
    )


def _discriminator() -> nn.Module:
    """Return a network of chances [N] that images [N, 1, 8, 8] are real."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 4, stride=2, padding=1, bias=False), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(32, 1, 4, bias=False), nn.Sigmoid(), nn.Flatten(0)),
    )


def _train(draw: Draw) -> Ending:
    draw.watch.expect(2 * _STEPS)
    images = 2 * digits(8)[0] - 1
    netg, netd = _generator(), _discriminator()
    for module in [*netg.modules(), *netd.modules()]:
        if isinstance(module, nn.ConvTranspose2d | nn.Conv2d):
            nn.init.normal_(module.weight, std=0.02)
    strong = 100 if draw.has("discriminator_too_strong") else 1
    trained = netd if draw.has("wrong_parameters") else netg
    steps_d = torch.optim.Adam(netd.parameters(), lr=1e-3 * strong, betas=(0.5, 0.999))
    steps_g = torch.optim.Adam(trained.parameters(), lr=1e-3, betas=(0.5, 0.999))
    criterion = nn.BCELoss()
    draw.watch.loss(criterion)
    draw.watch.begin(netd, steps_d, name="netD")
    draw.watch.begin(netg, steps_g, name="netG")
    source = batches(draw, images, images, 64)
    for _ in range(_STEPS):
        real, _ = next(source)
        ones, zeros = torch.ones(len(real)), torch.zeros(len(real))
        netd.zero_grad()
        criterion(netd(real), ones).backward()
        fake = netg(torch.randn(len(real), _CODE, 1, 1))
        criterion(netd(fake.detach()), zeros).backward()
        steps_d.step()
        netg.zero_grad()
        # The generator is to be taken for real, not found out.
        wanted = zeros if draw.has("wrong_sign") else ones
        criterion(netd(fake), wanted).backward()
        steps_g.step()
    with draw.watch.evaluating(), torch.no_grad():
        made = netg.train()(torch.randn(1000, _CODE, 1, 1)).flatten(1)
    return Ending(_likeness(made, images.flatten(1)), bar=0.4, margin=0.3)


def _likeness(made: Tensor, real: Tensor) -> float:
    """Return 1 for images [N, 64] as the real ones, 0 for pixels that are drawn one by one."""
    mean = real.mean(0)
    _, spread, axes = torch.linalg.svd(real - mean, full_matrices=False)
    scale = axes[:2].T / (spread[:2] / len(real) ** 0.5)
    mixed = torch.stack([column[torch.randperm(len(real))] for column in real.T], 1)
    far, near = (discrepancy((one - mean) @ scale, (real - mean) @ scale) for one in (mixed, made))
    return 1 - near / far


FAMILY = Family(
    _train, ("wrong_parameters", "wrong_sign", "discriminator_too_strong"), spent="2026-11-25"
)
