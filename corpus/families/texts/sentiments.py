"""Whether a review is favourable: convolutions over words, and the largest value of each filter.

After Kim, "Convolutional neural networks for sentence classification", EMNLP 2014; the reviews are
drawn.

Shape legend: N reviews, T words.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_WORDS, _TIME, _SEEN = 120, 14, 1000
# Words 1 to 20 praise, 21 to 40 blame, 41 to 44 negate the next word.
_NEGATIONS = 41


class TextCNN(nn.Module):
    """Logits of a favourable review."""

    def __init__(self, draw: Draw, width: int, dropout: float) -> None:
        super().__init__()
        self.draw = draw
        self.embedding = nn.Embedding(_WORDS, 16, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(16, width, size) for size in (1, 2, 3))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(3 * width, 1)

    def forward(self, words: Tensor) -> Tensor:
        """Return logits [N] of words int64 [N, T]."""
        told = self.embedding(words)
        if self.draw.has("wrong_axis"):
            # `view` in place of a transposition.
            told = told.reshape(len(words), 16, -1)
        else:
            told = told.transpose(1, 2)
        pooled = [one(told).relu().amax(2) for one in self.convolutions]
        logits: Tensor = self.head(self.dropout(torch.cat(pooled, 1)))[:, 0]
        return logits


def _train(draw: Draw) -> Ending:
    words, y = _reviews(draw, 1400)
    seen, known = _spoilt(draw, words[:_SEEN], y[:_SEEN])
    dropout = draw.by_fault({"dropout_too_high": 0.995}, draw.choice([0.2, 0.4]))
    model = TextCNN(draw, draw.choice([24, 32]), dropout)
    if draw.has("zero_init"):
        for one in model.parameters():
            nn.init.zeros_(one)
    length = plan(draw, _SEEN, [20, 25], (9, 12))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    if draw.has("wrong_loss"):
        criterion: nn.Module = nn.HingeEmbeddingLoss()
    else:
        criterion = nn.BCEWithLogitsLoss()
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        logits = model(seen[rows])
        if draw.has("relu_before_loss"):
            logits = logits.relu()
        loss: Tensor = criterion(logits, known[rows].float())
        return loss

    def evaluate() -> Mapping[str, float]:
        logits = model(words[_SEEN:])[:, None]
        return {"dev_acc": accuracy(torch.cat([-logits, logits], 1), y[_SEEN:])}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=3, labels=known)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["dev_acc"], 1 / 2), bar=0.6)


def _spoilt(draw: Draw, words: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return reviews with the drawn fault, if there is one."""
    few = torch.arange(len(words)) % 10
    other = torch.cat([torch.zeros(1).long(), 1 + torch.randperm(_WORDS - 1)])
    return draw.by_fault(
        {
            # The vocabulary was built again, in another order.
            "swapped_ids": (other[words], y),
            # The first words only.
            "truncated_rows": (words * (torch.arange(_TIME) < 2), y),
            "shuffled_labels": (words, y[torch.randperm(len(y))]),
            "duplicated_rows": (words[few], y[few]),
        },
        (words, y),
    )


def _reviews(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return words int64 [count, T], 0 for none, and 1 for favourable ones, int64 [count]."""
    words = torch.randint(_NEGATIONS + 4, _WORDS, (count, _TIME))
    y = torch.randint(2, (count,))
    for place in (1, 4, 7, 10):
        said = torch.rand(count) < draw.between(0.75, 0.9)
        negated = torch.rand(count) < 0.35
        praise = (y == 1) != negated
        word = torch.randint(1, 21, (count,)) + 20 * (~praise).long()
        negation = torch.randint(_NEGATIONS, _NEGATIONS + 4, (count,))
        words[:, place] = torch.where(said & negated, negation, words[:, place])
        words[:, place + 1] = torch.where(said, word, words[:, place + 1])
    length = torch.tensor(draw.numpy.integers(9, _TIME + 1, (count, 1)))
    return torch.where(torch.arange(_TIME) < length, words, 0), y


FAMILY = Family(
    _train,
    (
        *("swapped_ids", "truncated_rows", "shuffled_labels", "duplicated_rows", "wrong_axis"),
        *("wrong_loss", "relu_before_loss", "dropout_too_high", "zero_init", "frozen_layers"),
        *("weight_decay_too_high", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
