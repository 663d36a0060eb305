"""Which word each word of a sentence belongs to: a score for every two of them.

After Dozat and Manning, "Deep biaffine attention for neural dependency parsing", ICLR 2017; the
sentences are drawn.

Shape legend: N sentences of T words, the first of which stands for the root.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

# Kinds of words: 0 pads, 1 root; then articles, adjectives, nouns and verbs, 6 words each.
_WORDS, _TIME, _SEEN = 26, 9, 700


class Parser(nn.Module):
    """Scores of heads."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(_WORDS, size), nn.Embedding(_TIME, size)
        self.encoder = nn.GRU(size, size // 2, batch_first=True, bidirectional=True)
        self.dependent = nn.Sequential(nn.Linear(size, size), nn.ReLU())
        self.governor = nn.Sequential(nn.Linear(size, size), nn.ReLU())
        self.biaffine = nn.Linear(size, size)

    def forward(self, sentences: Tensor) -> Tensor:
        """Return scores [N, T, T] of the heads, last, of words int64 [N, T]."""
        told = self.words(sentences) + self.places(torch.arange(_TIME))
        told = self.encoder(told)[0]
        heads = self.governor(told).transpose(1, 2)
        scores: Tensor = self.biaffine(self.dependent(told)) @ heads
        return scores.masked_fill((sentences == 0)[:, None], -30.0)


def _train(draw: Draw) -> Ending:
    rows = _sentences(draw, 1000)
    model = Parser(draw.choice([32, 40]))
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [16, 20], (8, 10))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.biaffine), rate)
    loss = draw.watch.loss(F.cross_entropy)

    def compute(batch: Tensor) -> Tensor:
        scores, heads = model(rows.x[batch]), rows.y[batch]
        if draw.has("softmax_wrong_axis"):
            # Each word is chosen by its dependents, and not the other way round.
            scores = scores.transpose(1, 2)
        kept = heads < 0 if draw.has("mask_inverted") else heads >= 0
        return loss(scores[kept], heads[kept].clamp(min=0))

    def evaluate() -> Mapping[str, float]:
        return {"dev UAS": _attached(model(rows.x_val), rows.y_val)}

    chosen = evaluate if draw.chance(0.8) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, clip=5.0)
    model.eval()
    with torch.no_grad():
        return Ending(_attached(model(rows.x_test), rows.y_test), bar=0.65)


def _attached(scores: Tensor, heads: Tensor) -> float:
    """Return the share of words whose head is right."""
    return float((scores.argmax(2) == heads)[heads >= 0].double().mean())


def _sentences(draw: Draw, count: int) -> HeldOut:
    """Return words int64 [count, T] and places of their heads, -1 if there is none."""
    source = draw.numpy
    x, y = torch.zeros(count, _TIME, dtype=torch.long), torch.full((count, _TIME), -1)
    lengths = source.integers(6, _TIME, count)
    for row, length in enumerate(lengths):
        kinds = source.choice(3, length, p=[0.3, 0.25, 0.45])
        # There is one verb, and a noun after every article.
        verb = int(source.integers(1, length - 1))
        kinds[[verb - 1, -1]] = 2
        kinds[verb] = 3
        x[row, 0] = 1
        nouns = [place for place in range(length) if kinds[place] == 2]
        for place, kind in enumerate(kinds):
            x[row, 1 + place] = 2 + 6 * int(kind) + int(source.integers(6))
            if kind == 3:
                y[row, 1 + place] = 0
            elif kind == 2:
                y[row, 1 + place] = 1 + verb
            else:
                y[row, 1 + place] = 1 + min(noun for noun in nouns if noun > place)
    known = torch.randperm(_WORDS - 2)
    other = torch.cat([torch.arange(2), 2 + known])
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Places that count from the first word, among words that begin with the root.
            "wrong_shift": (x, torch.where(y > 0, y - 1, y)),
        },
        training={"swapped_ids": (other[x], y)},
    )


FAMILY = Family(
    _train,
    (
        *("wrong_shift", "swapped_ids", "shuffled_labels", "misaligned_targets"),
        *("mask_inverted", "softmax_wrong_axis", "same_batch", "zero_init", "wrong_sign"),
        *("wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
