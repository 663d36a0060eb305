"""Who wrote a passage, by its groups of three letters: a bag of embeddings, and plain SGD.

After Joulin et al., "Bag of tricks for efficient text classification", EACL 2017, as the tutorial
of torchtext has it; the passages are drawn.

Shape legend: N passages of T letters, C authors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_LETTERS, _TIME, _AUTHORS, _SEEN, _BUCKETS = 12, 60, 5, 800, 500


class TextClassifier(nn.Module):
    """Scores of authors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(_BUCKETS, width)
        self.fc = nn.Linear(width, _AUTHORS)

    def forward(self, groups: Tensor) -> Tensor:
        """Return scores [N, C] of groups int64 [N, T - 2]."""
        scores: Tensor = self.fc(self.embedding(groups))
        return scores


def _init(draw: Draw, model: TextClassifier) -> None:
    span = draw.by_fault({"zero_init": 0.0, "large_init": 100.0, "small_init": 1e-6}, 0.5)
    model.embedding.weight.data.uniform_(-span, span)
    model.fc.weight.data.uniform_(-span, span)
    model.fc.bias.data.zero_()


def _train(draw: Draw) -> Ending:
    rows = _passages(draw, 1200)
    model = TextClassifier(draw.choice([24, 32]))
    _init(draw, model)
    length = plan(draw, _SEEN, [8, 10], (9, 12))
    rate = learning_rate(draw, 1.5, 3.0)
    optimizer = torch.optim.SGD(trained(draw, model, model.fc), lr=rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    limit = draw.by_fault({"clip_too_small": draw.extent(1e-6, 1e-5)}, 0.1)
    order = rows.y.argsort(stable=True)
    for _ in range(length.epochs):
        model.train()
        if not draw.has("not_shuffled"):
            order = torch.randperm(_SEEN)
        for picked in order.split(length.size)[: length.batches]:
            optimizer.zero_grad()
            predicted = model(rows.x[picked])
            loss = criterion(predicted, rows.y[picked])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), limit)
            optimizer.step()
        scheduler.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("accu_val", accuracy(model(rows.x_val), rows.y_val))
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _AUTHORS), bar=0.5)


def _passages(draw: Draw, count: int) -> HeldOut:
    """Return groups of letters int64 [count, T - 2] and authors int64 [count]."""
    y = torch.randint(_AUTHORS, (count,))
    # What each author lets follow a letter.
    habit = torch.randn(_LETTERS, _LETTERS)
    own = draw.between(0.7, 0.9) * torch.randn(_AUTHORS, _LETTERS, _LETTERS)
    follow = (habit + own).softmax(2)
    letters = [torch.randint(_LETTERS, (count,))]
    for _ in range(_TIME - 1):
        letters.append(torch.multinomial(follow[y, letters[-1]], 1)[:, 0])
    text = torch.stack(letters, 1)
    wide = _LETTERS**2 * text[:, :-2] + _LETTERS * text[:, 1:-1] + text[:, 2:]
    groups = (wide * 2654435761) % 4294967296 % _BUCKETS
    return held_out(
        *(draw, groups, y, _SEEN),
        prepared={"colliding_ids": (groups % 3, y), "wrong_axis": (groups.T.reshape(count, -1), y)},
    )


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "colliding_ids", "wrong_axis", "not_shuffled", "clip_too_small"),
        *("zero_init", "large_init", "lr_too_low"),
    ),
)
