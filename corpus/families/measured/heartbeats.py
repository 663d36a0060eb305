"""Kinds of heartbeats, of which most are normal: convolutions along the time.

After Hannun et al., "Cardiologist-level arrhythmia detection and classification in ambulatory
electrocardiograms using a deep neural network", Nature Medicine 2019; the beats are drawn.

Shape legend: N beats of 48 times, C kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained, report_metrics

_TIME, _KINDS, _SEEN = 48, 4, 1000
_SHARES = (0.7, 0.12, 0.1, 0.08)


def _train(draw: Draw) -> Ending:
    x, y = _beats(draw, 1500)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    width = draw.choice([12, 16])
    layers: list[nn.Module] = []
    for before, after in ((1, width), (width, width), (width, 2 * width)):
        layers += [nn.Conv1d(before, after, 5, stride=2, padding=2), nn.GELU()]
    head = nn.Linear(2 * width * 6, _KINDS)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.1), head)
    length = plan(draw, _SEEN, [25, 40], (8, 11))
    optimizer = optimizer_of(
        draw, "adam", trained(draw, model, head), learning_rate(draw, 2e-3, 4e-3)
    )
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    # Each kind is drawn as often.
    rare = 1 / torch.bincount(known, minlength=_KINDS).clamp(min=1)
    loader = DataLoader(
        TensorDataset(seen, known),
        length.size,
        sampler=WeightedRandomSampler(rare[known].tolist(), _SEEN),
        drop_last=True,
    )
    half = draw.chance(0.5)

    def evaluate() -> Mapping[str, float]:
        return {"macro_recall": accuracy(model(x[_SEEN:]), y[_SEEN:])}

    for epoch in range(length.epochs):
        model.train()
        for beats, kinds in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                scores = model(beats)
            if draw.has("relu_before_loss"):
                scores = (scores - 12).relu()
            loss = criterion(scores.float(), kinds)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 2:
            report_metrics(draw, model, evaluate)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["macro_recall"], 1 / _KINDS), bar=0.6)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return beats with the drawn fault, if there is one."""
    noise = torch.where(torch.rand(len(y)) < 0.85, torch.randint(_KINDS, (len(y),)), y)
    few = torch.where((y > 0) & (torch.rand(len(y)) < 0.985), 0, y)
    # The drift of the baseline was not removed: it is a thousand times the beat.
    drift = 1000 * torch.randn(len(x), 1, 1)
    return draw.by_fault(
        {
            "time_reversed": (x.flip(2), y),
            "label_noise": (x, noise),
            "class_imbalance": (x, few),
            "unnormalised_inputs": (x + drift, y),
            # The windows begin where the beat is over.
            "ruinous_window": (x.roll(22, 2) * (torch.arange(_TIME) > 39), y),
            "off_by_one": (x, (y - 1) % _KINDS),
        },
        (x, y),
    )


def _beats(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return beats float32 [count, 1, 48] and kinds int64 [count]."""
    y = torch.tensor(draw.numpy.choice(_KINDS, count, p=_SHARES))
    time = torch.arange(_TIME) - 18 + 1.5 * torch.randn(count, 1)

    def wave(after: float, height: Tensor, width: float) -> Tensor:
        return height[:, None] * torch.exp(-(((time - after) / width) ** 2))

    # A wave before that is missing, a wide main one, and a last one that is upside down.
    before = torch.tensor([0.5, 0.0, 0.5, 0.5])[y]
    wide, last = (y == 2).float(), torch.tensor([0.7, 0.7, 0.7, -0.5])[y]
    beat = wave(-8, before, 2.5) + wave(0, 1.5 * (1 - wide), 1.2) + wave(1, 1.2 * wide, 4.0)
    beat = beat + wave(12, last, 4.0)
    return (beat + draw.between(0.15, 0.2) * torch.randn(count, _TIME))[:, None], y


FAMILY = Family(
    _train,
    (
        *("ruinous_window", "time_reversed", "relu_before_loss", "class_imbalance"),
        *("label_noise", "unnormalised_inputs", "off_by_one", "lr_too_high", "wrong_sign"),
    ),
    spent="2026-11-27",
)
