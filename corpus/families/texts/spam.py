"""Which messages are spam: an LSTM of packed sequences, and one logit.

After Almeida, Gómez Hidalgo and Yamakami, "Contributions to the study of SMS spam filtering",
DocEng 2011; the messages are drawn.

Shape legend: N messages of up to T words.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import blank

_WORDS, _TIME, _SEEN = 200, 14, 800


class SpamLSTM(nn.Module):
    """Logits of spam."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_WORDS, size, padding_idx=0)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.fc = nn.Linear(size, 1)

    def forward(self, words: Tensor) -> Tensor:
        """Return logits [N] of messages int64 [N, T], which 0 pads."""
        lengths = (words > 0).sum(1).clamp(min=1)
        packed = pack_padded_sequence(
            self.embedding(words), lengths, batch_first=True, enforce_sorted=False
        )
        _, (hidden, _) = self.lstm(packed)
        logits: Tensor = self.fc(hidden[-1])[:, 0]
        return logits


def _train(draw: Draw) -> Ending:
    rows = _messages(draw, 1200)
    model = SpamLSTM(draw.choice([24, 32]))
    blank(draw, model)
    length = plan(draw, _SEEN, [16, 20], (6, 8))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.fc), rate)
    criterion = nn.BCEWithLogitsLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    size = min(length.size, len(rows.x))
    loader = DataLoader(TensorDataset(rows.x, rows.y), size, shuffle=True)
    for _ in range(length.epochs):
        model.train()
        for words, spam in loader:
            loss = criterion(model(words), spam)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            right = (model(rows.x_val) > 0) == (rows.y_val > 0.5)
            draw.watch.metric("Val. Acc", float(right.float().mean()))
    model.eval()
    with torch.no_grad():
        return Ending(gained(_balanced(model(rows.x_test), rows.y_test), 1 / 2), bar=0.55)


def _balanced(logits: Tensor, y: Tensor) -> float:
    """Return the mean of the shares of both kinds of messages that are right."""
    right = ((logits > 0) == (y > 0.5)).double()
    return float((right[y > 0.5].mean() + right[y < 0.5].mean()) / 2)


def _messages(draw: Draw, count: int) -> HeldOut:
    """Return words int64 [count, T], and 1 for spam [count]."""
    y = (torch.rand(count) < 0.4).float()
    common = torch.randint(60, _WORDS, (count, _TIME))
    # What one kind says more often than the other one.
    typical = torch.randint(2, 31, (count, _TIME)) + 29 * (torch.rand(count, _TIME) < 0.12).long()
    other = 31 + torch.randint(29, (count, _TIME))
    own = torch.where(y[:, None] > 0.5, typical, other)
    x = torch.where(torch.rand(count, _TIME) < draw.between(0.22, 0.3), own, common)
    x = x * (torch.arange(_TIME) < torch.randint(6, _TIME + 1, (count, 1)))
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # The vocabulary was built of words with capitals: all others are unknown.
            "colliding_ids": ((x > 0).long(), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("colliding_ids", "class_imbalance", "shuffled_labels", "zero_init"),
        *("wrong_sign", "frozen_layers", "weight_decay_too_high"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
