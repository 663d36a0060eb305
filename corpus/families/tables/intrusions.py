"""Kinds of traffic in a network, some of which are rare: bytes and durations with long tails.

After Tavallaee et al., "A detailed analysis of the KDD CUP 99 data set", CISDA 2009.

Shape legend: N connections, F features, C kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_FEATURES, _KINDS, _SEEN = 12, 5, 1500
_SHARES = (0.45, 0.25, 0.15, 0.1, 0.05)


def _train(draw: Draw) -> Ending:
    raw, y = _connections(draw, 2300)
    # Counts of bytes: their logarithms are what networks like.
    x = raw.log1p() / 4 - 1
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    held = raw[_SEEN:] if draw.has("preprocessing_mismatch") else x[_SEEN:]
    width = draw.choice([40, 56])
    dropout = draw.by_fault({"dropout_too_high": 0.98}, draw.choice([0.1, 0.2]))
    head = nn.Linear(width, _KINDS)
    model = nn.Sequential(
        *(nn.Linear(_FEATURES, width), nn.LeakyReLU(0.1), nn.Dropout(dropout)),
        *(nn.Linear(width, width), nn.LeakyReLU(0.1), nn.Dropout(dropout), head),
    )
    length = plan(draw, _SEEN, [30, 50], (11, 15))
    optimizer = optimizer_of(
        draw, "adam", trained(draw, model, head), learning_rate(draw, 2e-3, 4e-3)
    )
    counts = torch.bincount(y[:_SEEN], minlength=_KINDS).float()
    weight = counts.sum() / counts / _KINDS
    criterion = nn.CrossEntropyLoss(weight=weight)
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        scores = model(seen[rows])
        loss: Tensor = criterion(scores, known[rows])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"balanced_accuracy": accuracy(model(held), y[_SEEN:])}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=3)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["balanced_accuracy"], 1 / _KINDS), bar=0.5)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the connections with the drawn fault, if there is one."""
    noise = torch.where(torch.rand(len(y)) < 0.85, torch.randint(_KINDS, (len(y),)), y)
    rare = (y == 0) | (torch.rand(len(y)) < 0.004)
    common = torch.where(rare, y, 0)
    return draw.by_fault(
        {
            "label_noise": (x, noise),
            # The recorder took what it did not know for normal traffic.
            "class_imbalance": (x, common),
            "off_by_one": (x, (y + 1) % _KINDS),
            # Each line was cut off after a few features.
            "truncated_rows": (x * (torch.arange(_FEATURES) < 2), y),
            "wrong_axis": (x.T.reshape(x.shape), y),
        },
        (x, y),
    )


def _connections(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return counts float32 [count, F], of 0 to millions, and kinds int64 [count]."""
    y = torch.tensor(draw.numpy.choice(_KINDS, count, p=_SHARES))
    centres = 5 + 1.0 * torch.randn(_KINDS, _FEATURES)
    logarithm = centres[y] + draw.between(1.2, 1.6) * torch.randn(count, _FEATURES)
    return logarithm.clamp(0, 14).exp().floor(), y


FAMILY = Family(
    _train,
    (
        *("truncated_rows", "preprocessing_mismatch", "class_imbalance", "label_noise"),
        *("off_by_one", "dropout_too_high", "wrong_axis"),
    ),
    spent="2026-11-27",
)
