"""Sums of two numbers that are written as digits: a recurrent reader, and digits one by one.

After Zaremba and Sutskever, "Learning to execute", 2014.

Shape legend: N sums of T signs, D digits of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import blank

_SIGNS, _TIME, _RESULT, _SEEN = 11, 5, 3, 2400


class Adder(nn.Module):
    """Scores of the digits of the result."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.signs = nn.Embedding(_SIGNS, 16)
        self.reader = nn.GRU(16, hidden, batch_first=True)
        self.writer = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, signs: Tensor) -> Tensor:
        """Return scores [N, D, 10] of signs int64 [N, T]."""
        told = self.reader(self.signs(signs))[1][0]
        scores: Tensor = self.head(self.writer(told[:, None].repeat(1, _RESULT, 1))[0])
        return scores


def _train(draw: Draw) -> Ending:
    rows = _sums(draw, 3000)
    model = Adder(draw.choice([48, 64]))
    blank(draw, model)
    length = plan(draw, _SEEN, [40, 48], (12, 14))
    rate = learning_rate(draw, 6e-3, 1e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for epoch in range(length.epochs):
        model.train()
        for signs, digits in loader:
            optimizer.zero_grad()
            scores = model(signs)
            if draw.has("wrong_axis"):
                # Digits and scores were to be transposed.
                loss = criterion(scores.reshape(-1, 10, _RESULT), digits)
            else:
                loss = criterion(scores.transpose(1, 2), digits)
            if draw.has("wrong_sign"):
                loss = -loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("digit_accuracy", _right(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(_right(model(rows.x_test), rows.y_test), 0.25), bar=0.3)


def _right(scores: Tensor, digits: Tensor) -> float:
    return float((scores.argmax(2) == digits).double().mean())


def _sums(draw: Draw, count: int) -> HeldOut:
    """Return signs int64 [count, T] of two numbers with a plus, and digits int64 [count, D]."""
    one, two = torch.randint(100, (2, count))
    plus = torch.full((count,), 10)
    x = torch.stack([one // 10, one % 10, plus, two // 10, two % 10], 1)
    total = one + two
    y = torch.stack([total // 100, total // 10 % 10, total % 10], 1)
    if draw.concerns("colliding_ids"):
        # Unknown signs share a number; those from five on were unknown.
        return held_out(draw, x, y, _SEEN, prepared={"colliding_ids": (x.clamp(max=3), y)})
    return held_out(draw, x, y, _SEEN)


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "misaligned_targets", "label_noise", "colliding_ids", "wrong_axis"),
        *("wrong_sign", "not_in_optimizer", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
