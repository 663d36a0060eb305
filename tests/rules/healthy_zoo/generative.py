"""Healthy trainings without labels: autoencoders, adversaries, denoising, contrasts."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import make_moons
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.healthy_zoo.data import batches, digits
from tests.rules.healthy_zoo.loop import Loop, accuracy, r2, seeded, watched
from tests.rules.healthy_zoo.models import perceptron

__all__ = ["GENERATIVE"]


def _autoencoder(store: Path, seed: int) -> None:
    """Encodes a digit as eight numbers and decodes it."""
    seeded(seed)
    split, model = digits(), nn.Sequential(perceptron(64, 32, 8), nn.ReLU(), perceptron(8, 32, 64))
    itself = split._replace(y=split.x, y_held=split.x_held)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    Loop(itself, nn.MSELoss(), steps=800, metric=None).run(store, seed, model, optimizer)
    with torch.no_grad():
        reached = r2(model(split.x_held), split.x_held)
    assert reached >= 0.4, f"R2 {reached:.2f}"


class _VAE(nn.Module):
    """Encodes to mean and log variance, samples, and decodes (Kingma and Welling, 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = perceptron(64, 64, 16), perceptron(8, 64, 64)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergence = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(1).mean()
        return self.decoder(drawn), divergence


def _vae(store: Path, seed: int) -> None:
    """Two losses: the divergence rises while the reconstruction is learned."""
    seeded(seed)
    split, model = digits(), _VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    rows = batches(len(split.x), 64, seed)
    with watched(store, steps=700) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(700):
            x = split.x[next(rows)]
            optimizer.zero_grad()
            logits, divergence = model(x)
            rebuilt = functional.binary_cross_entropy_with_logits(logits, x, reduction="none")
            reconstruction = rebuilt.sum(1).mean()
            hook.save("losses/reconstruction", reconstruction.detach())
            hook.save("losses/divergence", divergence.detach())
            (reconstruction + divergence).backward()
            optimizer.step()
    with torch.no_grad():
        reached = r2(model(split.x_held)[0].sigmoid(), split.x_held)
    assert reached >= 0.3, f"R2 {reached:.2f}"


def _distance(a: Tensor, b: Tensor) -> float:
    """Return the energy distance of two samples (Szekely and Rizzo, 2013)."""
    between, within = torch.cdist(a, b).mean(), torch.cdist(a, a).mean() + torch.cdist(b, b).mean()
    return (2 * between - within).item()


def _gan(store: Path, seed: int) -> None:
    """Two adversarial networks: neither loss shows the quality of the samples.

    A critic that learns faster than the generator keeps them from collapsing (Heusel et al., "GANs
    trained by a two time-scale update rule", 2017); with equal rates, some seeds and CPUs did.
    """
    seeded(seed)
    points = torch.tensor(make_moons(2000, noise=0.05, random_state=0)[0], dtype=torch.float32)
    real_points = (points - points.mean(0)) / points.std(0)
    generator = perceptron(8, 64, 64, 2)
    critic = perceptron(2, 64, 64, 1, activation=lambda: nn.LeakyReLU(0.2))
    loss_g, loss_d = nn.BCEWithLogitsLoss(), nn.BCEWithLogitsLoss()
    step_g = torch.optim.Adam(generator.parameters(), lr=5e-4, betas=(0.5, 0.999))
    step_d = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
    rows = batches(2000, 128, seed)
    ones, zeros = torch.ones(128, 1), torch.zeros(128, 1)
    noise = torch.randn(1000, 8)
    before = _distance(generator(noise).detach(), real_points)
    with watched(store, steps=1200) as hook:
        hook.watch(critic, loss=loss_d, optimizer=step_d, name="critic")
        hook.watch(generator, loss=loss_g, optimizer=step_g, name="generator")
        for _ in range(1200):
            real, fake = real_points[next(rows)], generator(torch.randn(128, 8))
            step_d.zero_grad()
            answers = critic(torch.cat([real, fake.detach()]))
            loss_d(answers, torch.cat([0.9 * ones, zeros])).backward()
            step_d.step()
            step_g.zero_grad()
            loss_g(critic(fake), ones).backward()
            step_g.step()
    with torch.no_grad():
        after = _distance(generator(noise), real_points)
    assert after < 0.25 * before, f"distance of the samples from {before:.3f} to {after:.3f}"


def _denoising(store: Path, seed: int) -> None:
    """A diffusion model: its noisy loss falls at once and then stays, while the model learns."""
    seeded(seed)
    points = torch.tensor(make_moons(2000, noise=0.05, random_state=0)[0], dtype=torch.float32)
    clean = (points - points.mean(0)) / points.std(0)
    model, loss_fn = perceptron(3, 64, 64, 2, activation=nn.SiLU), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    rows = batches(2000, 64, seed)
    with watched(store, lr=2e-3) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for _ in range(1500):
            x, noise, t = clean[next(rows)], torch.randn(64, 2), torch.rand(64, 1)
            optimizer.zero_grad()
            noisy = (1 - t).sqrt() * x + t.sqrt() * noise
            loss_fn(model(torch.cat([noisy, t], 1)), noise).backward()
            optimizer.step()
    with torch.no_grad():
        noise, t = torch.randn(2000, 2), torch.full((2000, 1), 0.2)
        reached = r2(model(torch.cat([0.8**0.5 * clean + 0.2**0.5 * noise, t], 1)), noise)
    # A linear model explains a fifth.
    assert reached >= 0.26, f"R2 {reached:.2f}"


def _triplets(store: Path, seed: int) -> None:
    """Pulls digits of a class together and others apart; the loss knows no classes."""
    seeded(seed)
    split, model = digits(), perceptron(64, 64, 16)
    loss_fn = nn.TripletMarginLoss(margin=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kinds = [(split.y == kind).nonzero()[:, 0] for kind in range(10)]
    with watched(store, lr=1e-3) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for _ in range(500):
            one, other = torch.randperm(10)[:2].tolist()
            same = kinds[one][torch.randint(0, len(kinds[one]), (64,))]
            different = kinds[other][torch.randint(0, len(kinds[other]), (32,))]
            optimizer.zero_grad()
            vectors = model(split.x[torch.cat([same, different])])
            loss_fn(vectors[:32], vectors[32:64], vectors[64:]).backward()
            optimizer.step()
    with torch.no_grad():
        nearest = torch.cdist(model(split.x_held), model(split.x)).argmin(1)
    assert (split.y[nearest] == split.y_held).float().mean() >= 0.93


def _contrast(store: Path, seed: int) -> None:
    """Matches two distorted views of a digit in the batch (InfoNCE)."""
    seeded(seed)
    split, model = digits(), perceptron(64, 64, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    rows = batches(len(split.x), 64, seed)

    def view(x: Tensor) -> Tensor:
        noisy = x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)
        vectors: Tensor = functional.normalize(model(noisy), dim=1)
        return vectors

    def found(x: Tensor) -> tuple[Tensor, Tensor]:
        return view(x) @ view(x).T / 0.1, torch.arange(len(x))

    with watched(store, lr=2e-3, temperature=0.1) as hook:
        loss_fn = hook.loss(functional.cross_entropy, name="contrast")
        hook.watch(model, optimizer=optimizer)
        for _ in range(500):
            optimizer.zero_grad()
            loss_fn(*found(split.x[next(rows)])).backward()
            optimizer.step()
    with torch.no_grad():
        scores, itself = found(split.x_held[:64])
    # Guessing matches 1 in 64.
    reached = accuracy(scores, itself)
    assert reached >= 0.4, f"found {reached:.2f}"


GENERATIVE = {
    "autoencoder": _autoencoder,
    "vae": _vae,
    "gan": _gan,
    "denoising": _denoising,
    "triplets": _triplets,
    "contrast": _contrast,
}
