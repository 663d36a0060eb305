"""Which words of a sentence name places, people or firms: an encoder of padded sentences.

After Lample et al., "Neural architectures for named entity recognition", NAACL 2016, with the
encoder of Vaswani et al., "Attention is all you need", NeurIPS 2017; the sentences are drawn.

Shape legend: N sentences, T words, C tags.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_WORDS, _TIME, _TAGS, _SEEN, _NONE = 80, 10, 4, 800, -100


class Tagger(nn.Module):
    """Scores [N, T, C] of the tags of words int64 [N, T]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(_WORDS, size), nn.Embedding(_TIME, size)
        layer = nn.TransformerEncoderLayer(
            *(size, 4, 2 * size, 0.0), batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, _TAGS)

    def forward(self, words: Tensor) -> Tensor:
        """Return the scores."""
        told = self.words(words) + self.places.weight
        scores: Tensor = self.head(self.layers(told, src_key_padding_mask=words == 0))
        return scores


def _train(draw: Draw) -> Ending:
    words, tags = _sentences(draw, 1100)
    seen, known = _spoilt(draw, words[:_SEEN], tags[:_SEEN])
    model = Tagger(draw.choice([32, 40]))
    length = plan(draw, _SEEN, [16, 20], (8, 10))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    criterion = nn.CrossEntropyLoss(ignore_index=_NONE)
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        scores, wanted = model(seen[rows]).flatten(0, 1), known[rows].flatten()
        if draw.has("mask_inverted"):
            wanted = torch.where(wanted == _NONE, 0, _NONE)
        if draw.has("wrong_loss"):
            # Tags are numbers of kinds, not amounts.
            some = wanted != _NONE
            return F.mse_loss(scores[some].mean(1), wanted[some].float())
        loss: Tensor = criterion(scores, wanted)
        return loss

    def evaluate() -> Mapping[str, float]:
        counted = tags[_SEEN:] != _NONE
        return {"tag_f": accuracy(model(words[_SEEN:])[counted], tags[_SEEN:][counted])}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=3, clip=1.0)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["tag_f"], 1 / _TAGS), bar=0.6)


def _spoilt(draw: Draw, words: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
    """Return sentences with the drawn fault, if there is one."""
    kept = tags > _NONE
    lower = torch.where(words > 60, 60 + (words % 2), words)
    few = torch.arange(len(words)) % 12
    named = (tags > 0) & (torch.rand(tags.shape) < 0.98)
    return draw.by_fault(
        {
            # Tags of words, for tokens that begin with one of the tokenizer's own.
            "wrong_shift": (words, torch.where(kept, tags.roll(1, 1).clamp(min=0), tags)),
            # Without capitals, names are words like others.
            "case_lost": (lower, tags),
            "off_by_one": (words, torch.where(kept, (tags + 1) % _TAGS, tags)),
            "duplicated_rows": (words[few], tags[few]),
            # Annotators marked a few of the names only.
            "class_imbalance": (words, torch.where(named, 0, tags)),
            "shuffled_labels": (words, tags[torch.randperm(len(tags))]),
        },
        (words, tags),
    )


def _sentences(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return words int64 [count, T], 0 for none, and tags int64 [count, T]."""
    words = torch.randint(1, 61, (count, _TIME))
    name = torch.rand(count, _TIME) < 0.35
    # Words from 61 on are names; six each of places and of people are firms after an article.
    words = torch.where(name, torch.randint(61, _WORDS, (count, _TIME)), words)
    kind = torch.where(words > 60, 1 + (words - 61) // 7, 0)
    article = torch.cat([torch.zeros(count, 1), (words % 5 == 0)[:, :-1].float()], 1) > 0
    tags = torch.where((kind == 1) & article, 3, kind)
    length = torch.tensor(draw.numpy.integers(6, _TIME + 1, (count, 1)))
    there = torch.arange(_TIME) < length
    return torch.where(there, words, 0), torch.where(there, tags, _NONE)


FAMILY = Family(
    _train,
    (
        *("case_lost", "wrong_shift", "mask_inverted", "wrong_loss"),
        *("off_by_one", "duplicated_rows", "class_imbalance", "shuffled_labels"),
        *("lr_too_high", "wrong_sign"),
    ),
    spent="2026-11-27",
)
