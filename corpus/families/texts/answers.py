"""Where in a passage the answer to a question begins and ends: convolutions and two scores.

After Yu et al., "QANet: combining local convolution with global self-attention for reading
comprehension", ICLR 2018, without its attention; the passages are drawn.

Shape legend: N questions, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

# Words 1 to 8 ask for things; the answer follows the word that is 8 higher, up to a stop.
_WORDS, _PASSAGE, _SEEN, _ASKED, _STOP = 60, 14, 1000, 8, 17
# The question and a separator come first.
_BEFORE = 2


class Reader(nn.Module):
    """Scores of where an answer begins, and of where it ends."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, 24)
        self.input = nn.Conv1d(48, size, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv1d(size, size, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for _ in range(2))
        self.qa_outputs = nn.Conv1d(size, 2, 1)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return both scores [N, T] of tokens int64 [N, T]."""
        told = self.words(tokens)
        # Each word with the question.
        told = torch.cat([told, told[:, :1].expand_as(told)], 2).transpose(1, 2)
        told = self.input(told)
        for norm, block in zip(self.norms, self.blocks, strict=True):
            told = told + block(norm(told).relu())
        begin, end = self.qa_outputs(told.relu()).unbind(1)
        return begin, end


def _train(draw: Draw) -> Ending:
    tokens, begin, end = _passages(draw, 1300)
    seen, first, last = _spoilt(draw, tokens[:_SEEN], begin[:_SEEN], end[:_SEEN])
    model = Reader(draw.choice([48, 64]))
    length = plan(draw, _SEEN, [20, 25], (6, 8))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.qa_outputs), rate, 1e-2)
    steps = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=length.steps)

    def span_loss(scores: Tensor, wanted: Tensor) -> Tensor:
        return F.nll_loss(F.log_softmax(scores, 1), wanted)

    loss = draw.watch.loss(span_loss)

    def compute(rows: Tensor) -> Tensor:
        begins, ends = model(seen[rows])
        found = loss(begins, first[rows])
        if draw.has("term_left_out"):
            return found
        return (found + loss(ends, last[rows])) / 2

    def evaluate() -> Mapping[str, float]:
        begins, ends = model(tokens[_SEEN:])
        right = (begins.argmax(1) == begin[_SEEN:]) & (ends.argmax(1) == end[_SEEN:])
        return {"exact_match": float(right.double().mean())}

    chosen = evaluate if draw.chance(0.8) else None
    fit(
        draw, model, optimizer, length, compute, evaluate=chosen, every=3, clip=1.0, per_batch=steps
    )
    model.eval()
    with torch.no_grad():
        return Ending(evaluate()["exact_match"], bar=0.6)


def _spoilt(
    draw: Draw, tokens: Tensor, begin: Tensor, end: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return passages with the drawn fault, if there is one."""
    order = torch.randperm(len(tokens))
    few = torch.arange(len(tokens)) % 12
    blind = tokens.clone()
    blind[:, 0] = 1
    return draw.by_fault(
        {
            # Places in the passage, and not in what the model reads.
            "wrong_shift": (tokens, begin - _BEFORE, end - _BEFORE),
            "shuffled_labels": (tokens, begin[order], end[order]),
            "duplicated_rows": (tokens[few], begin[few], end[few]),
            # All questions were read from the first line.
            "question_left_out": (blind, begin, end),
            # An index that ends behind the last word.
            "off_by_one": (tokens, begin, (end + 1).clamp(max=_BEFORE + _PASSAGE - 1)),
        },
        (tokens, begin, end),
    )


def _passages(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens int64 [count, T] and the places of the answers' ends int64 [count]."""
    source = draw.numpy
    tokens = torch.tensor(source.integers(18, _WORDS, (count, _BEFORE + _PASSAGE)))
    begin, end = torch.zeros(2, count, dtype=torch.int64)
    for row in range(count):
        asked = source.permutation(_ASKED)[:2] + 1
        size = source.integers(1, 4, 2)
        gap = source.integers(0, _PASSAGE - 4 - size.sum() + 1)
        place = _BEFORE + int(source.integers(0, gap + 1))
        for word, wide in zip(asked, size, strict=True):
            tokens[row, place] = int(word) + _ASKED
            tokens[row, place + 1 + wide] = _STOP
            if word == asked[0]:
                answered = place + 1, place + int(wide)
            place += 2 + int(wide)
        chosen = source.integers(2)
        tokens[row, 0], tokens[row, 1] = int(asked[0]), 0
        if chosen:
            # The second of both things is asked for.
            tokens[row, 0] = int(asked[1])
            answered = place - 1 - int(size[1]), place - 2
        begin[row], end[row] = answered
    return tokens, begin, end


FAMILY = Family(
    _train,
    (
        *("wrong_shift", "question_left_out", "term_left_out", "off_by_one", "shuffled_labels"),
        *("duplicated_rows", "frozen_layers", "not_in_optimizer", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
