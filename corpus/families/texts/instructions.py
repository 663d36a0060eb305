"""Answers to questions by a small writer: only the words of the answers count in the loss.

After Ouyang et al., "Training language models to follow instructions with human feedback", NeurIPS
2022, of which this is the first step; questions and facts are drawn.

Shape legend: N texts of T words.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import blank

# Words: 0 ends; then relations, things, values, and the marks of question and answer.
_RELATIONS, _THINGS, _VALUES, _ASKED, _TOLD, _WORDS = 1, 4, 28, 52, 53, 56
_TIME, _PROMPT = 8, 5


class Writer(nn.Module):
    """Scores of next words."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        self.words, self.places = nn.Embedding(_WORDS, size), nn.Embedding(_TIME, size)
        layer = nn.TransformerEncoderLayer(
            *(size, 4, 4 * size, 0.0, "gelu"), batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.lm_head = nn.Linear(size, _WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [N, T, words] of words int64 [N, T]."""
        time = words.shape[1]
        told = self.words(words) + self.places(torch.arange(time))
        mask = nn.Transformer.generate_square_subsequent_mask(time)
        told = self.blocks(told, mask=None if self.draw.has("no_causal_mask") else mask)
        scores: Tensor = self.lm_head(told)
        return scores


def _train(draw: Draw) -> Ending:
    facts = torch.tensor(draw.numpy.integers(0, 24, (3, 24)))
    # The last 200 texts are evaluated.
    texts = _texts(facts, 1100)
    places = torch.arange(1100)
    if draw.has("duplicated_rows"):
        places[:900] %= 9
    given = texts[places]
    if draw.has("shuffled_labels"):
        # Answers of other questions.
        answers = texts[torch.randperm(len(texts)), _PROMPT:]
        given = torch.cat([texts[:, :_PROMPT], answers], 1)
    labels = given.clone()
    if draw.has("mask_inverted"):
        labels[:, _PROMPT:] = -100
    else:
        labels[:, :_PROMPT] = -100
    model = Writer(draw, draw.choice([32, 40]))
    if draw.has("large_init"):
        for one in model.parameters():
            nn.init.normal_(one, std=2.0)
    blank(draw, model)
    length = plan(draw, 900, [18, 25], (10, 13))
    rate = learning_rate(draw, 2.5e-3, 4e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.lm_head), rate, 0.01)
    loss_fn = draw.watch.loss(F.cross_entropy)

    def compute(batch: Tensor) -> Tensor:
        scores, wanted = model(given[batch]), labels[batch]
        if not draw.has("unshifted_targets"):
            scores, wanted = scores[:, :-1], wanted[:, 1:]
        return loss_fn(scores.flatten(0, 1), wanted.flatten())

    def evaluate() -> Mapping[str, float]:
        return {"eval_loss": float(compute(torch.arange(900, 1100)))}

    chosen = evaluate if draw.chance(0.5) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, clip=1.0)
    model.eval()
    asked = _texts(facts, 600)
    said = asked[:, :_PROMPT]
    with torch.no_grad():
        for _ in range(_TIME - _PROMPT):
            said = torch.cat([said, model(said)[:, -1].argmax(1, keepdim=True)], 1)
    right = (said[:, _PROMPT] == asked[:, _PROMPT]).double()
    return Ending(float(right.mean()), bar=0.6)


def _texts(facts: Tensor, count: int) -> Tensor:
    """Return words int64 [count, T] of questions and their answers."""
    relation, thing = torch.randint(3, (count,)), torch.randint(24, (count,))
    marks = [torch.full((count,), one) for one in (_ASKED, _TOLD, 54 + 1, 0)]
    value = _VALUES + facts[relation, thing]
    courtesy = 54 + torch.randint(2, (count,))
    asked = [marks[0], courtesy, _RELATIONS + relation, _THINGS + thing, marks[1]]
    return torch.stack([*asked, value, marks[2], marks[3]], 1)


FAMILY = Family(
    _train,
    (
        *("mask_inverted", "unshifted_targets", "no_causal_mask", "shuffled_labels"),
        *("duplicated_rows", "large_init", "zero_init", "missing_step", "frozen_layers"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
