"""Words that were hidden in sentences of a small grammar, by an encoder that sees both sides.

After Devlin et al., "BERT", NAACL 2019.

Shape legend: N sentences, T words of a sentence, V words and the mask.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, gained, run_loop
from corpus.optimisation import Optimisation

_WORDS, _MASK, _IGNORED = 12, 0, -100


class Encoder(nn.Module):
    """Scores of all words at all places."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(_WORDS, width)
        for table in (self.word, self.place):
            nn.init.normal_(table.weight, std=0.1)
        block = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words))

    def forward(self, ids: Tensor) -> Tensor:
        """Return scores [N, T, V] of sentences int64 [N, T]."""
        scores: Tensor = self.head(self.encoder(self.word(ids) + self.place.weight))
        return scores


def _train(draw: Draw) -> Ending:
    kinds = draw.choice([4, 5, 6])
    words = 3 * kinds + 1
    rules = torch.stack([torch.randperm(kinds) for _ in range(2)])
    model = Encoder(words, 32, draw.choice([1, 2]))
    networks.spoil(draw, model)
    steps, size = draw.steps(300, 500), draw.choice([24, 32])
    optimiser = Optimisation(
        draw, model, steps, scale=1.5, kinds=("adam", "adamw"), accumulates=False
    )
    share = draw.choice([0.15, 0.25])

    def surprise(scores: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=_IGNORED)

    loss = draw.watch.loss(surprise)

    def compute() -> Tensor:
        sentences = _sentences(rules, size)
        hidden = torch.rand(sentences.shape) < share
        hidden[:, 0] |= ~hidden.any(1)
        labels = torch.where(hidden, sentences, _IGNORED)
        inputs = torch.where(hidden, _MASK, sentences)
        if draw.has("target_leak"):
            # The words are not hidden from the encoder.
            inputs = sentences
        if draw.has("misaligned_targets"):
            labels = labels.roll(1, 1)
        if draw.has("shuffled_labels"):
            labels = labels[torch.randperm(size)]
        if draw.has("term_left_out"):
            # The loss is of the words that can be seen.
            labels = torch.where(hidden, _IGNORED, sentences)
        return loss(model(inputs), labels)

    tested = _sentences(rules, 300)
    places = torch.randint(_WORDS, (300,))

    def right() -> float:
        inputs = tested.clone()
        inputs[torch.arange(300), places] = _MASK
        found = model(inputs)[torch.arange(300), places].argmax(1)
        return float((found == tested[torch.arange(300), places]).double().mean())

    def evaluate() -> Mapping[str, float]:
        return {"mlm_accuracy": right()}

    chosen = evaluate if draw.chance(0.5) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(right(), 1 / kinds), bar=0.5)


def _sentences(rules: Tensor, count: int) -> Tensor:
    """Return sentences int64 [N, T] of triples: two words of a triple follow from the first."""
    kinds = rules.shape[1]
    first = torch.randint(kinds, (count, _WORDS // 3))
    triples = [first, kinds + rules[0][first], 2 * kinds + rules[1][first]]
    return torch.stack(triples, 2).flatten(1) + 1


FAMILY = Family(
    _train,
    (
        *("target_leak", "term_left_out", "misaligned_targets", "shuffled_labels"),
        *("lr_too_low", "lr_too_high", "wrong_sign", "scheduler_to_zero"),
        *("frozen_layers",),
    ),
    spent="2026-11-26",
)
