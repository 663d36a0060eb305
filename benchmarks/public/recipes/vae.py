"""A variational autoencoder, after PyTorch's example: a sum of a cross-entropy and a divergence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits

PIXELS, HIDDEN, LATENT, BATCH = 24 * 24, 900, 20, 128


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(PIXELS, HIDDEN)
        self.mean = nn.Linear(HIDDEN, LATENT)
        self.log_variance = nn.Linear(HIDDEN, LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = F.relu(self.encoder(x.flatten(1)))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        sample = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decoder(sample), mean, log_variance


def loss_of(model: VAE, x: Tensor) -> Tensor:
    decoded, mean, log_variance = model(x)
    reconstruction = F.binary_cross_entropy(decoded, x.flatten(1), reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return reconstruction + divergence


def main() -> None:
    torch.manual_seed(1)
    images, _ = digits(24)
    training, validation = images[:1536], images[1536:]
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total, journal, step = steps(300), Journal(), 0
    while step < total:
        model.train()
        for x in training[torch.randperm(len(training))].split(BATCH)[: total - step]:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            journal.step(loss=loss.item())
            step += 1
        model.eval()
        with torch.no_grad():
            summed = sum(loss_of(model, x).item() for x in validation.split(BATCH))
        journal.evaluated(summed / len(validation))
    journal.finish(model.state_dict().values())


if __name__ == "__main__":
    main()
