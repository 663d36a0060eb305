"""Denoising diffusion of small images: it predicts the noise and averages its weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits

TIMES, WIDTH, BATCH, RATE = 1000, 24, 32, 1e-3


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.first = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.down = nn.Conv2d(WIDTH, 2 * WIDTH, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, one) for one in (WIDTH, 2 * WIDTH, 2 * WIDTH))
        self.last = nn.Conv2d(2 * WIDTH, 1, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        rates = torch.exp(-torch.linspace(0, 9, WIDTH // 2))
        angles = time[:, None] * rates
        shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        first = F.silu(self.norms[0](self.first(x)) + shift)
        down = F.silu(self.norms[1](self.down(first)))
        middle = F.silu(self.norms[2](self.middle(down)))
        noise: Tensor = self.last(torch.cat([self.up(middle), first], 1))
        return noise


def main() -> None:
    torch.manual_seed(0)
    images = digits(16)[0] * 2 - 1
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES), 0)
    model = Denoiser()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.99))
    total, journal = steps(300), Journal()
    for _ in range(total):
        x = images[torch.randint(len(images), (BATCH,))]
        time, noise = torch.randint(TIMES, (BATCH,)), torch.randn_like(x)
        share = kept[time][:, None, None, None]
        loss = F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, time), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)
        journal.step(loss=loss.item())
    journal.finish(one for each in (model, average) for one in each.state_dict().values())


if __name__ == "__main__":
    main()
