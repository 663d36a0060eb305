"""Spoken commands, synthesised as chirps and tones in noise: a network of their spectrograms.

After Sainath and Parada, "Convolutional neural networks for small-footprint keyword spotting",
Interspeech 2015.

Shape legend: N clips, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses, networks
from corpus.data.rows import batches, rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop
from corpus.optimisation import Optimisation

_SAMPLES, _WINDOW, _HOP = 512, 64, 32


def _train(draw: Draw) -> Ending:
    classes = draw.choice([4, 6, 8])
    x, y = _clips(draw, draw.choice([400, 800, 1200]), classes)
    data = rows_of(draw, x.numpy(), y.numpy(), classes=classes)
    width = draw.choice([8, 12])
    momentum = 1e-6 if draw.has("bn_momentum") else 0.1
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width, momentum=momentum)),
        *(nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width, momentum=momentum)),
        *(nn.ReLU(), nn.AdaptiveAvgPool2d((4, 2)), nn.Flatten()),
        *(nn.Dropout(0.3), nn.Linear(16 * width, classes)),
    )
    networks.spoil(draw, model)
    steps = draw.steps(150, 350)
    optimiser = Optimisation(draw, model, steps, scale=1.5, kinds=("adam", "adamw", "nesterov"))
    loss = losses.class_loss(draw)
    source = batches(draw, data.x, data.y, draw.choice([24, 32]))
    half = draw.chance(0.5)

    def compute() -> Tensor:
        clips, labels = next(source)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            scores = model(clips)
        return loss(scores.float(), labels)

    def evaluate() -> Mapping[str, float]:
        return {"wer": 1 - accuracy(model(data.x_val), data.y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        right = accuracy(model(data.x_val), data.y_val)
    return Ending(gained(right, 1 / classes), bar=0.6)


def _clips(draw: Draw, count: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return standardised log-spectrograms [N, 1, bins, frames], and the commands [N]."""
    y = torch.arange(count) % classes
    times = torch.arange(_SAMPLES) / _SAMPLES
    low, high = 20 + 90 * torch.rand(2, classes)
    low, high = (one[y, None] * (1 + 0.04 * torch.randn(count, 1)) for one in (low, high))
    start = 0.25 * torch.rand(count, 1)
    inner = ((times - start) / 0.6).clamp(0, 1)
    phase = 2 * math.pi * (low * inner + 0.5 * (high - low) * inner.square())
    spoken = (inner > 0) & (inner < 1)
    sound = spoken * (phase + 6.28 * torch.rand(count, 1)).sin()
    sound = sound + draw.between(0.2, 0.6) * torch.randn(count, _SAMPLES)
    spectrum = torch.stft(
        sound, _WINDOW, _HOP, window=torch.hann_window(_WINDOW), return_complex=True
    )
    logs = (spectrum.abs().square() + 1e-3).log()[:, None, :32]
    return (logs - logs.mean()) / logs.std(), y


FAMILY = Family(
    _train,
    (
        *("bn_momentum", "wrong_axis", "ruinous_augmentation", "same_batch"),
        *("shuffled_labels", "lr_too_low", "clip_too_small"),
    ),
    spent="2026-11-26",
)
