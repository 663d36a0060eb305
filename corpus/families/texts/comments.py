"""What is wrong with a comment, if anything: a bag of words, and several labels at a time.

After the challenge "Toxic comment classification" of Jigsaw, 2018, as its first baselines solve it;
the comments are drawn.

Shape legend: N comments, T words, K labels.
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

_WORDS, _TIME, _LABELS, _SEEN = 150, 16, 4, 1200


class BagOfWords(nn.Module):
    """Logits of labels."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        dropout = draw.by_fault({"dropout_too_high": 0.99}, 0.1)
        self.embed = nn.EmbeddingBag(_WORDS, size, mode="sum", padding_idx=0)
        self.hidden = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Dropout(dropout))
        self.out = nn.Linear(size, _LABELS)

    def forward(self, words: Tensor) -> Tensor:
        """Return logits [N, K] of words int64 [N, T]."""
        logits: Tensor = self.out(self.hidden(self.embed(words)))
        return logits


def _train(draw: Draw) -> Ending:
    rows = _comments(draw, 1700)
    model = BagOfWords(draw, draw.choice([24, 32]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [24, 30], (8, 10))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    criterion = nn.BCEWithLogitsLoss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        loss: Tensor = criterion(model(rows.x[batch]), rows.y[batch])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"macro_f1": _matched(model(rows.x_val), rows.y_val)}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate)
    model.eval()
    with torch.no_grad():
        return Ending(_matched(model(rows.x_test), rows.y_test), bar=0.6)


def _matched(logits: Tensor, labels: Tensor) -> float:
    """Return the mean F1 score of the labels."""
    found, true = logits > 0, labels > 0.5
    both = 2 * (found & true).sum(0)
    return float((both / (found.sum(0) + true.sum(0)).clamp(min=1)).mean())


def _comments(draw: Draw, count: int) -> HeldOut:
    """Return words int64 [count, T], 0 for none, and labels float32 [count, K]."""
    labels = (torch.rand(count, _LABELS) < 0.3).float()
    words = torch.randint(60, _WORDS, (count, _TIME))
    for label in range(_LABELS):
        for place in (3 * label, 3 * label + 1):
            said = (labels[:, label] == 1) & (torch.rand(count) < draw.between(0.85, 0.95))
            word = 1 + 12 * label + torch.randint(12, (count,))
            words[:, place] = torch.where(said, word, words[:, place])
    words = words.gather(1, torch.rand(words.shape).argsort(1))
    other = torch.cat([torch.zeros(1).long(), 1 + torch.randperm(_WORDS - 1)])
    # Words that were not seen often became one: the rare ones are those that matter.
    unknown = torch.where(words < 60, 1, words)
    return held_out(
        *(draw, words, labels, _SEEN),
        prepared={
            "colliding_ids": (unknown, labels),
            "truncated_rows": (words * (torch.arange(_TIME) < 3), labels),
        },
        # The vocabulary was saved before it was sorted.
        training={"swapped_ids": (other[words], labels)},
    )


FAMILY = Family(
    _train,
    (
        *("colliding_ids", "truncated_rows", "swapped_ids", "shuffled_labels"),
        *("duplicated_rows", "dropout_too_high", "dead_relu", "same_batch"),
        *("weight_decay_too_high", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
