"""Whether a sentence follows from another one: both are compared, word by word.

After Parikh et al., "A decomposable attention model for natural language inference", EMNLP 2016;
the sentences are drawn.

Shape legend: N pairs of P and H words.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_THINGS, _COLOURS, _PREMISE, _HYPOTHESIS, _KINDS, _SEEN = 6, 4, 6, 2, 3, 1500


class Entailment(nn.Module):
    """Scores of: it follows, it does not, one cannot say."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_THINGS + _COLOURS + 1, size)
        # A colour and the thing that has it.
        self.phrases = nn.Conv1d(size, size, 2, 2)
        self.attend, self.compare = nn.Linear(size, size), nn.Linear(2 * size, size)
        self.aggregate = nn.Sequential(nn.Linear(size, size), nn.ReLU())
        self.out = nn.Linear(size, _KINDS)

    def forward(self, pair: Tensor) -> Tensor:
        """Return scores [N, 3] of words int64 [N, P + H]."""
        told = self.words(pair).transpose(1, 2)
        told = self.phrases(told).transpose(1, 2)
        premise, said = told.split([_PREMISE // 2, _HYPOTHESIS // 2], 1)
        likeness = (self.attend(said) @ premise.transpose(1, 2)).softmax(2)
        found = torch.cat([said, likeness @ premise], 2)
        scores: Tensor = self.out(self.aggregate(self.compare(found).relu().sum(1)))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _pairs(draw, 2000)
    model = Entailment(draw.choice([40, 48]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [25, 30], (14, 17))
    rate = learning_rate(draw, 5e-3, 8e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.out), rate, 1e-4)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        loss: Tensor = criterion(model(rows.x[batch]), rows.y[batch])
        return loss

    def evaluate() -> Mapping[str, float]:
        scores = model(rows.x_val)
        return {
            "val_loss": float(criterion(scores, rows.y_val)),
            "val_accuracy": float((scores.argmax(1) == rows.y_val).double().mean()),
        }

    fit(
        *(draw, model, optimizer, length, compute),
        evaluate=evaluate,
        every=3,
        clip=5.0,
        labels=rows.y,
    )
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.55)


def _pairs(draw: Draw, count: int) -> HeldOut:
    """Return words int64 [count, P + H] and kinds int64 [count]."""
    things = 1 + torch.rand(count, _THINGS).argsort(1)[:, : 1 + _PREMISE // 2]
    colours = 1 + _THINGS + torch.randint(_COLOURS, (count, _PREMISE // 2))
    premise = torch.stack([colours, things[:, :-1]], 2).flatten(1)
    y = torch.randint(_KINDS, (count,))
    asked = torch.randint(_PREMISE // 2, (count,))
    rows = torch.arange(count)
    shift = torch.randint(1, _COLOURS, (count,))
    other = 1 + _THINGS + (colours[rows, asked] - 1 - _THINGS + shift) % _COLOURS
    colour = torch.where(y == 0, colours[rows, asked], other)
    thing = torch.where(y == 2, things[:, -1], things[rows, asked])
    pair = torch.cat([premise, colour[:, None], thing[:, None]], 1)
    noisy = torch.rand(count) < draw.between(0.01, 0.04)
    y = torch.where(noisy, torch.randint(_KINDS, (count,)), y)
    # Hypotheses of other premises.
    mixed = torch.cat([premise, pair[torch.randperm(count), _PREMISE:]], 1)
    return held_out(
        *(draw, pair, y, _SEEN),
        prepared={
            "swapped_pairs": (mixed, y),
            "truncated_rows": (torch.where(torch.arange(8) < 2, 0, pair), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "truncated_rows", "shuffled_labels", "label_noise"),
        *("duplicated_rows", "not_shuffled", "dead_relu", "missing_zero_grad"),
        *("frozen_layers", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
