"""The section of a newspaper, from the words of a headline: their mean, and a linear layer.

After Joulin et al., "Bag of tricks for efficient text classification", EACL 2017, with SGD whose
rate falls in a line to zero; the headlines are drawn.

Shape legend: N headlines of T words, C sections.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained, report_metrics

_WORDS, _TIME, _SECTIONS, _SEEN = 300, 8, 6, 1500


class Bag(nn.Module):
    """Log-probabilities [N, C] of headlines int64 [N, T]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(_WORDS, size, mode="mean")
        self.head = nn.Linear(size, _SECTIONS)

    def forward(self, words: Tensor) -> Tensor:
        """Return the log-probabilities."""
        found: Tensor = self.head(self.words(words)).log_softmax(1)
        return found


def _train(draw: Draw) -> Ending:
    words, y = _headlines(draw, 2200)
    seen, known = _spoilt(draw, words[:_SEEN], y[:_SEEN])
    model = Bag(draw.choice([16, 24]))
    length = plan(draw, _SEEN, [10, 15], (10, 13))
    # The gradient of a word is shared by the words of a headline.
    rate = learning_rate(draw, 1.0, 2.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    # The unit of the fault is an epoch, and not a batch.
    over = length.epochs if draw.has("scheduler_to_zero") else length.steps
    fall = torch.optim.lr_scheduler.PolynomialLR(optimizer, over)
    criterion = nn.NLLLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)

    def evaluate() -> Mapping[str, float]:
        return {"test accuracy": accuracy(model(words[_SEEN:]), y[_SEEN:])}

    for epoch in range(length.epochs):
        model.train()
        if draw.has("reset_each_epoch") and epoch:
            # The model is made inside of the loop.
            for one in (model.words, model.head):
                one.reset_parameters()
        for rows in torch.randperm(length.count).split(length.size)[: length.batches]:
            model.zero_grad()
            loss = criterion(model(seen[rows]), known[rows])
            loss.backward()
            optimizer.step()
            fall.step()
        if epoch % 4 == 3:
            report_metrics(draw, model, evaluate)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["test accuracy"], 1 / _SECTIONS), bar=0.5)


def _spoilt(draw: Draw, words: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return headlines with the drawn fault, if there is one."""
    noise = torch.where(torch.rand(len(y)) < 0.9, torch.randint(_SECTIONS, (len(y),)), y)
    few = torch.arange(len(y)) % 18
    # Stop words are kept, and others left out.
    stopped = torch.where(words < 240, 240 + words % 60, words)
    return draw.by_fault(
        {
            "stop_words_kept": (stopped, y),
            "swapped_ids": (torch.randperm(_WORDS)[words], y),
            "label_noise": (words, noise),
            "misaligned_targets": (words, y.roll(1)),
            "duplicated_rows": (words[few], y[few]),
            "off_by_one": (words, (y + 1) % _SECTIONS),
        },
        (words, y),
    )


def _headlines(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return words int64 [count, T] and sections int64 [count]."""
    y = torch.randint(_SECTIONS, (count,))
    own = y[:, None] * 40 + torch.randint(40, (count, _TIME))
    other = torch.randint(240, (count, _TIME))
    common = torch.randint(240, _WORDS, (count, _TIME))
    kind = torch.rand(count, _TIME)
    mine = draw.between(0.36, 0.45)
    return torch.where(kind < mine, own, torch.where(kind < 0.6, other, common)), y


FAMILY = Family(
    _train,
    (
        *("stop_words_kept", "swapped_ids", "reset_each_epoch", "misaligned_targets"),
        *("scheduler_to_zero", "label_noise", "duplicated_rows"),
        *("off_by_one", "batch_too_large", "lr_too_low"),
    ),
    spent="2026-11-27",
)
