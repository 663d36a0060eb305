"""Two sounds from their sum, in whichever order: masks of learned filters.

After Luo and Mesgarani, "Conv-TasNet", IEEE/ACM Transactions on Audio, Speech, and Language
Processing 2019, with the best of both orders (Yu et al., ICASSP 2017).

Shape legend: N sums, 2 sounds, T samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

_TIME, _SEEN = 160, 700


class Separator(nn.Module):
    """Two sounds [N, 2, T] of sums [N, T]."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, 16, 8, 4, bias=False)
        self.masks = nn.Sequential(
            *(nn.GroupNorm(1, filters), nn.Conv1d(filters, 48, 1)),
            *(nn.PReLU(), nn.Conv1d(48, 48, 3, padding=1)),
            *(nn.PReLU(), nn.Conv1d(48, 48, 3, padding=2, dilation=2)),
            *(nn.PReLU(), nn.Conv1d(48, 2 * filters, 1), nn.Sigmoid()),
        )
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, 8, 4, bias=False)

    def forward(self, mixed: Tensor) -> Tensor:
        """Return the sounds."""
        inner = self.encoder(mixed[:, None])
        masked = self.masks(inner).unflatten(1, (2, -1)) * inner[:, None]
        found: Tensor = self.decoder(masked.flatten(0, 1))
        return found.reshape(len(mixed), 2, -1)


def _train(draw: Draw) -> Ending:
    sounds = _sounds(draw, 900)
    mixed = sounds.sum(1)
    seen, known = _spoilt(draw, mixed[:_SEEN], sounds[:_SEEN])
    model = Separator(draw.choice([32, 48]))
    networks.spoil(draw, model)
    size, epochs = draw.choice([20, 28]), draw.whole(10, 14)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(2e-3, 5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4)}, 1.0)
    weights = list(model.parameters())
    if draw.has("frozen_layers"):
        # From another model, whose filters were kept.
        for one in (*model.encoder.parameters(), *model.masks.parameters()):
            one.requires_grad_(False)
        weights = [one for one in weights if one.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=rate)
    draw.watch.begin(model, optimizer)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(_SEEN).split(size)[: draw.epoch]:
            optimizer.zero_grad()
            loss = _loss(draw, model(seen[rows]), known[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        plateau.step(total)
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("si_snr", _decibels(model(mixed[_SEEN:]), sounds[_SEEN:]))
    return _ending(model, mixed[_SEEN:], sounds[_SEEN:])


def _loss(draw: Draw, found: Tensor, known: Tensor) -> Tensor:
    ratio = torch.stack([_ratio(found, known), _ratio(found, known.flip(1))])
    if draw.has("wrong_order"):
        # The larger error was kept.
        return -ratio.mean(2).min(0).values.mean()
    best = ratio.mean(2).max(0).values.mean()
    return best if draw.has("wrong_sign") else -best


def _decibels(found: Tensor, known: Tensor) -> float:
    """Return the mean ratio in dB of the better orders."""
    one, other = _ratio(found, known).mean(1), _ratio(found, known.flip(1)).mean(1)
    return float(torch.maximum(one, other).mean())


def _ratio(found: Tensor, known: Tensor) -> Tensor:
    """Return scale-invariant signal-to-noise ratios [N, 2] in dB."""
    found, known = (one - one.mean(2, keepdim=True) for one in (found, known))
    share = (found * known).sum(2, keepdim=True) / (known.square().sum(2, keepdim=True) + 1e-8)
    right = share * known
    noise = (found - right).square().sum(2)
    return 10 * torch.log10((right.square().sum(2) + 1e-8) / (noise + 1e-8))


@torch.no_grad()
def _ending(model: Separator, mixed: Tensor, known: Tensor) -> Ending:
    """Return how much of the power is the right sound's, beyond that of the sum."""
    found = model(mixed)
    orders = torch.stack([_ratio(found, known), _ratio(found, known.flip(1))])
    # The share of the power: 10 dB are 10 parts of 11.
    power = torch.sigmoid(orders * math.log(10) / 10).mean(2).max(0).values.mean()
    return Ending(gained(float(power), 0.5), bar=0.5)


def _spoilt(draw: Draw, mixed: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums and sounds with the drawn fault, if there is one."""
    if draw.has("misaligned_targets"):
        return mixed, known.roll(1, 0)
    if draw.has("augmented_without_targets"):
        return mixed.flip(1), known
    if draw.has("constant_inputs"):
        return torch.zeros_like(mixed), known
    return mixed, known


def _sounds(draw: Draw, count: int) -> Tensor:
    """Return pairs of a low and a high tone float32 [count, 2, T], in a random order."""
    time = torch.arange(_TIME)
    low, high = 0.02 + 0.03 * torch.rand(count, 1), 0.12 + 0.12 * torch.rand(count, 1)
    phase = 2 * math.pi * torch.rand(2, count, 1)
    swell = 1 + 0.5 * torch.sin(2 * math.pi * (0.01 * time + torch.rand(count, 1)))
    tones = [
        torch.sin(2 * math.pi * low * time + phase[0]),
        swell * torch.sin(2 * math.pi * high * time + phase[1]),
    ]
    sounds = torch.stack(tones, 1) + draw.between(0.02, 0.06) * torch.randn(count, 2, _TIME)
    turned = torch.rand(count) < 0.5
    return torch.where(turned[:, None, None], sounds.flip(1), sounds)


FAMILY = Family(
    _train,
    (
        *("wrong_order", "augmented_without_targets", "misaligned_targets", "constant_inputs"),
        *("frozen_layers", "lr_too_low", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
