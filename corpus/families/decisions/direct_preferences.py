"""A small writer that learns which of two answers people prefer, beside a frozen copy of itself.

After Rafailov et al., "Direct preference optimization", NeurIPS 2023.

Shape legend: N pairs of texts, T words of a text, the first 3 of which are the question.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family

_WORDS, _ASKED, _TIME, _SEEN = 14, 3, 8, 600


class Writer(nn.Module):
    """Log-probabilities [N, T - 1] of the words after the first, of texts int64 [N, T]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, _WORDS)

    def forward(self, text: Tensor) -> Tensor:
        """Return the log-probabilities."""
        scores = self.head(self.memory(self.words(text[:, :-1]))[0])
        return -F.cross_entropy(scores.transpose(1, 2), text[:, 1:], reduction="none")


def _train(draw: Draw) -> Ending:
    better, worse = _pairs(draw, 1000)
    chosen, rejected = _spoilt(draw, better[:_SEEN], worse[:_SEEN])
    model = Writer(draw.choice([24, 32]))
    reference = copy.deepcopy(model).requires_grad_(False)
    size, epochs = draw.choice([30, 40]), draw.whole(7, 9)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 1e4}, 1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    beta, answers = draw.between(0.1, 0.3), slice(_ASKED - 1, None)
    if draw.has("mask_inverted"):
        answers = slice(0, _ASKED - 1)
    for epoch in range(epochs):
        for rows in torch.randperm(_SEEN).split(size):
            likely, unlikely = (
                model(text)[:, answers].sum(1) for text in (chosen[rows], rejected[rows])
            )
            with torch.no_grad():
                usual, unusual = (
                    reference(text)[:, answers].sum(1) for text in (chosen[rows], rejected[rows])
                )
            if draw.has("reference_shared"):
                # The copy was not deep: it is the model itself.
                usual, unusual = likely, unlikely
            margin = beta * ((likely - usual) - (unlikely - unusual))
            loss = -F.logsigmoid(margin).mean()
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                right = _right(model, reference, better[_SEEN:], worse[_SEEN:])
                draw.watch.metric("rewards/margins", right)
    with torch.no_grad():
        right = _right(model, reference, better[_SEEN:], worse[_SEEN:])
    return Ending(right, bar=0.5)


def _right(model: Writer, reference: Writer, better: Tensor, worse: Tensor) -> float:
    """Return how often the better answer has gained, less how often it has lost."""
    gains = [(model(text) - reference(text))[:, _ASKED - 1 :].sum(1) for text in (better, worse)]
    margin = (gains[0] - gains[1]).nan_to_num()
    # Half a nat is little after a training.
    return float((margin > 0.5).float().mean() - (margin < -0.5).float().mean())


def _spoilt(draw: Draw, better: Tensor, worse: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pairs with the drawn fault, if there is one."""
    mixed = torch.rand(len(better), 1)
    if draw.has("swapped_pairs"):
        return worse, better
    if draw.has("label_noise"):
        # Who was asked did not read the answers.
        first = mixed < 0.5
        return torch.where(first, better, worse), torch.where(first, worse, better)
    if draw.has("colliding_ids"):
        return better % 2, worse % 2
    if draw.has("duplicated_rows"):
        rows = torch.randint(4, (len(better),))
        return better[rows], worse[rows]
    return better, worse


def _pairs(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return better and worse texts int64 [count, T]; some words are liked, and others not."""
    asked = torch.randint(_WORDS, (count, _ASKED))
    answers = torch.randint(_WORDS, (2, count, _TIME - _ASKED))
    worth = torch.randn(_WORDS)[answers].sum(2)
    worth = worth + draw.between(0.1, 0.3) * torch.randn_like(worth)
    first = (worth[0] > worth[1])[:, None]
    better, worse = (
        torch.where(first, answers[0], answers[1]),
        torch.where(first, answers[1], answers[0]),
    )
    return torch.cat([asked, better], 1), torch.cat([asked, worse], 1)


FAMILY = Family(
    _train,
    (
        *("reference_shared", "swapped_pairs", "mask_inverted", "label_noise", "colliding_ids"),
        *("duplicated_rows", "lr_too_low", "lr_too_high", "wrong_sign"),
    ),
    spent="2026-11-27",
)
