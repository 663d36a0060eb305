"""Embeddings of words that occur together, by negative sampling.

After Mikolov et al., "Distributed representations of words and phrases", NeurIPS 2013.

Shape legend: N pairs, K negative words, V words.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, gained, run_loop
from corpus.optimisation import Optimisation


class SkipGram(nn.Module):
    """Vectors of words, and of words as contexts."""

    def __init__(self, words: int, size: int, spread: float) -> None:
        super().__init__()
        self.word, self.context = nn.Embedding(words, size), nn.Embedding(words, size)
        for table in (self.word, self.context):
            nn.init.normal_(table.weight, std=spread)

    def forward(self, word: Tensor, contexts: Tensor) -> Tensor:
        """Return scores [N, K] of words [N] with contexts [N, K]."""
        scores: Tensor = (self.context(contexts) @ self.word(word)[:, :, None])[:, :, 0]
        return scores


def _train(draw: Draw) -> Ending:
    topics, each = draw.choice([4, 5, 6]), draw.choice([15, 20, 30])
    words = topics * each
    stray = draw.between(0.1, 0.3)
    if draw.has("ruinous_window"):
        stray = 0.95
    names = torch.randperm(words)
    spread = draw.by_fault({"zero_init": 0.0, "large_init": draw.extent(10, 30)}, 0.2)
    model = SkipGram(words, draw.choice([8, 16, 24]), spread)
    steps, size = draw.steps(300, 700), draw.choice([128, 256])
    optimiser = Optimisation(draw, model, steps, scale=4.0, kinds=("adamw",), accumulates=False)
    negatives = draw.choice([3, 5, 8])
    weight = -1.0 if draw.has("term_wrong_sign") else 1.0

    def surprise(near: Tensor, far: Tensor) -> Tensor:
        return -F.logsigmoid(near).mean() - weight * F.logsigmoid(-far).sum(1).mean()

    loss = draw.watch.loss(surprise)

    def compute() -> Tensor:
        word = torch.randint(words, (size,))
        beside = torch.where(
            torch.rand(size) < stray,
            torch.randint(words, (size,)),
            word // each * each + torch.randint(each, (size,)),
        )
        if draw.has("shuffled_labels"):
            beside = beside[torch.randperm(size)]
        others = torch.randint(words, (size, negatives))
        scores = model(names[word], names[torch.cat([beside[:, None], others], 1)])
        return loss(scores[:, :1], scores[:, 1:])

    run_loop(draw, model, optimiser, steps, compute=compute)
    with evaluation(draw, model):
        vectors = F.normalize(model.word.weight[names], dim=1)
        alike = (vectors @ vectors.T).fill_diagonal_(-2.0).nan_to_num(-2.0)
        topic = torch.arange(words) // each
        right = (topic[alike.topk(5).indices] == topic[:, None]).double().mean()
    return Ending(gained(float(right), 1 / topics), bar=0.5)


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "shuffled_labels"),
        *("ruinous_window", "zero_init", "large_init", "wrong_sign"),
        *("lr_too_high", "lr_too_low", "scheduler_per_batch", "weight_decay_too_high"),
        *("not_in_optimizer", "wrong_parameters", "adam_epsilon"),
    ),
    spent="2026-11-25",
)
