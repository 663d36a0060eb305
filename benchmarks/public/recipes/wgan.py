"""A Wasserstein GAN with clipped weights: five steps of the critic per step of the generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits

NOISE, PIXELS, HIDDEN, BATCH, CRITIC_STEPS, CLIP = 64, 24 * 24, 256, 64, 5, 0.01


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(NOISE, HIDDEN),
            nn.LeakyReLU(0.2),
            nn.Linear(HIDDEN, HIDDEN),
            nn.BatchNorm1d(HIDDEN, 0.8),
            nn.LeakyReLU(0.2),
            nn.Linear(HIDDEN, PIXELS),
            nn.Tanh(),
        )

    def forward(self, noise: Tensor) -> Tensor:
        found: Tensor = self.layers(noise)
        return found


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(PIXELS, HIDDEN),
            nn.LeakyReLU(0.2),
            nn.Linear(HIDDEN, HIDDEN),
            nn.LeakyReLU(0.2),
            nn.Linear(HIDDEN, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.layers(images)
        return found


def main() -> None:
    torch.manual_seed(0)
    images = digits(24)[0].flatten(1) * 2 - 1
    generator, critic = Generator(), Critic()
    on_generator = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
    on_critic = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
    total, journal = steps(300), Journal()
    for _ in range(total):
        for _ in range(CRITIC_STEPS):
            on_critic.zero_grad()
            real = images[torch.randint(len(images), (BATCH,))]
            fake = generator(torch.randn(BATCH, NOISE)).detach()
            distance = -critic(real).mean() + critic(fake).mean()
            distance.backward()
            on_critic.step()
            for weight in critic.parameters():
                weight.data.clamp_(-CLIP, CLIP)
        on_generator.zero_grad()
        deceived = -critic(generator(torch.randn(BATCH, NOISE))).mean()
        deceived.backward()
        on_generator.step()
        journal.step(generator=deceived.item())
    networks = (generator, critic)
    journal.finish(one for network in networks for one in network.state_dict().values())


if __name__ == "__main__":
    main()
