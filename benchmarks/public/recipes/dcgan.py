"""Convolutional GAN after PyTorch's example: one loss module, called three times a step."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits

NOISE, WIDTH, BATCH = 32, 12, 32


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def main() -> None:
    torch.manual_seed(999)
    images = digits(32)[0] * 2 - 1
    generator = nn.Sequential(
        nn.ConvTranspose2d(NOISE, 4 * WIDTH, 4, 1, 0, bias=False),
        nn.BatchNorm2d(4 * WIDTH),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(4 * WIDTH, 2 * WIDTH, 4, 2, 1, bias=False),
        nn.BatchNorm2d(2 * WIDTH),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, 2, 1, bias=False),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(WIDTH, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    ).apply(initialise)
    discriminator = nn.Sequential(
        nn.Conv2d(1, WIDTH, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(WIDTH, 2 * WIDTH, 4, 2, 1, bias=False),
        nn.BatchNorm2d(2 * WIDTH),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(2 * WIDTH, 4 * WIDTH, 4, 2, 1, bias=False),
        nn.BatchNorm2d(4 * WIDTH),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4 * WIDTH, 1, 4, 1, 0, bias=False),
        nn.Flatten(0),
        nn.Sigmoid(),
    ).apply(initialise)
    criterion = nn.BCELoss()
    on_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    on_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    total, journal = steps(300), Journal()
    for _ in range(total):
        labels = torch.full((BATCH,), 1.0)
        discriminator.zero_grad()
        on_real = criterion(discriminator(images[torch.randint(len(images), (BATCH,))]), labels)
        on_real.backward()
        fake = generator(torch.randn(BATCH, NOISE, 1, 1))
        labels.fill_(0.0)
        on_fake = criterion(discriminator(fake.detach()), labels)
        on_fake.backward()
        on_discriminator.step()
        generator.zero_grad()
        labels.fill_(1.0)
        deceived = criterion(discriminator(fake), labels)
        deceived.backward()
        on_generator.step()
        journal.step(real=on_real.item(), fake=on_fake.item(), deceived=deceived.item())
    networks = (generator, discriminator)
    journal.finish(one for network in networks for one in network.state_dict().values())


if __name__ == "__main__":
    main()
