"""A class, a number and a mask of one input, whose losses are weighted by learned uncertainties.

After Kendall, Gal and Cipolla, "Multi-task learning using uncertainty to weigh losses", CVPR 2018.

Shape legend: N rows, F features, C classes, M bits of the mask.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, explained, gained
from corpus.optimisation import Optimisation

_CLASSES, _BITS = 4, 6


class Rows(NamedTuple):
    """Inputs [N, F], classes int64 [N], numbers [N, 1] and bits float32 [N, M]."""

    x: Tensor
    kind: Tensor
    number: Tensor
    bits: Tensor


class Shared(nn.Module):
    """A shared body, a head for each task, and the logarithms of the variances."""

    def __init__(self, features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(features, width), nn.SiLU(), nn.Dropout(dropout)),
            *(nn.Linear(width, width), nn.SiLU()),
        )
        self.heads = nn.ModuleDict(
            {
                "kind": nn.Linear(width, _CLASSES),
                "number": nn.Linear(width, 1),
                "bits": nn.Linear(width, _BITS),
            }
        )
        self.log_variance = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return outputs of each task, by name."""
        inner = self.body(x)
        return {name: head(inner) for name, head in self.heads.items()}


def _train(draw: Draw) -> Ending:
    features = draw.choice([10, 16])
    rows = _rows(draw, 2400, features)
    train, valid = (Rows(*(one[part] for one in rows)) for part in (slice(1600), slice(1600, None)))
    train = _spoilt(draw, train)
    dropout = 0.97 if draw.has("dropout_too_high") else draw.choice([0.0, 0.1])
    model = Shared(features, draw.choice([64, 96]), dropout)
    networks.spoil(draw, model)
    size, epochs = draw.choice([32, 64]), draw.whole(14, 24)
    draw.epoch = len(train.x) // size
    steps = epochs * draw.epoch
    draw.watch.expect(steps)
    kinds = ("adam", "adamw", "nesterov")
    optimiser = Optimisation(draw, model, steps, kinds=kinds, accumulates=False)
    draw.watch.begin(model, optimiser.optimizer)
    reports = draw.chance(0.6)

    def loss(batch: Rows) -> Tensor:
        found = model(batch.x)
        losses = torch.stack(
            [
                F.cross_entropy(found["kind"], batch.kind),
                F.mse_loss(found["number"], batch.number),
                F.binary_cross_entropy_with_logits(found["bits"], batch.bits),
            ]
        )
        if draw.has("term_left_out"):
            # Nothing keeps the variances from growing.
            return (losses * (-model.log_variance).exp()).sum()
        if draw.has("loss_reduction"):
            losses = losses * torch.tensor([1.0, 1e5, 1.0])
        return (losses * (-model.log_variance).exp() + model.log_variance).sum()

    for _ in range(epochs):
        model.train()
        for index in torch.randperm(len(train.x)).split(size)[: draw.epoch]:
            batch = Rows(*(one[index] for one in train))
            optimiser.step(lambda batch=batch: loss(batch))  # type: ignore[misc]
        if reports:
            with draw.watch.evaluating(), evaluation(draw, model):
                for name, value in _scores(model, valid).items():
                    draw.watch.metric(f"val_{name}", value)
    with evaluation(draw, model):
        return Ending(sum(_scores(model, valid).values()) / 3, bar=0.45)


def _scores(model: Shared, valid: Rows) -> dict[str, float]:
    """Return the score of each task: 0 for a guess, 1 for the truth."""
    found = model(valid.x)
    right = ((found["bits"] > 0) == (valid.bits > 0.5)).double().mean()
    return {
        "kind": gained(accuracy(found["kind"], valid.kind), 1 / _CLASSES),
        "number": max(-1.0, explained(found["number"], valid.number)),
        "bits": gained(float(right), 0.5),
    }


def _spoilt(draw: Draw, rows: Rows) -> Rows:
    """Return rows with the drawn fault, if there is one."""
    order = torch.randperm(len(rows.x))
    if draw.has("misaligned_targets"):
        # The table of the labels was sorted by another key.
        return rows._replace(
            kind=rows.kind[order], number=rows.number[order], bits=rows.bits[order]
        )
    if draw.has("unnormalised_targets"):
        return rows._replace(number=3000 * rows.number + 20000)
    if draw.has("unnormalised_inputs"):
        return rows._replace(x=rows.x * 3e4)
    if draw.has("nan_inputs"):
        missing = torch.rand(rows.x.shape) < 0.002
        return rows._replace(x=rows.x.masked_fill(missing, torch.nan))
    return rows


def _rows(draw: Draw, count: int, features: int) -> Rows:
    x = torch.randn(count, features)
    with torch.no_grad():
        inner = torch.tanh(x @ torch.randn(features, 24) / features**0.5 * 1.5)
        outputs = inner @ torch.randn(24, _CLASSES + 1 + _BITS)
        outputs = (outputs - outputs.mean(0)) / outputs.std(0)
        outputs = outputs + draw.between(0.05, 0.2) * torch.randn_like(outputs)
    scores, number, bits = outputs.split([_CLASSES, 1, _BITS], dim=1)
    return Rows(x, scores.argmax(1), number, (bits > 0).float())


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "term_left_out", "unnormalised_targets"),
        *("unnormalised_inputs", "nan_inputs", "loss_reduction", "dropout_too_high"),
        *("lr_too_low", "late_jump", "not_in_optimizer"),
    ),
    spent="2026-11-26",
)
