"""Which gesture a wrist makes, from accelerations of any length: a bidirectional LSTM.

After Hammerla, Halloran and Plötz, "Deep, convolutional, and recurrent models for human activity
recognition using wearables", IJCAI 2016; the gestures are drawn.

Shape legend: N gestures of up to T times, C kinds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_TIME, _AXES, _KINDS, _SEEN = 16, 3, 5, 600


class Gestures(nn.Module):
    """Scores of the kinds of gestures."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        self.lstm = nn.LSTM(_AXES, size, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * size, _KINDS)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return scores [N, C] of accelerations float32 [N, T, 3] of lengths int64 [N]."""
        if self.draw.has("pool_wrong_axis"):
            # The mean over the batch, for each of the first times.
            means = self.lstm(x)[0].mean(0)
            return self.scored(means[torch.arange(len(x)) % _TIME])
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        return self.scored(torch.cat([*last], 1))

    def scored(self, told: Tensor) -> Tensor:
        """Return scores [N, C] of summaries of gestures."""
        scores: Tensor = self.head(told)
        return scores


def _train(draw: Draw) -> Ending:
    x, lengths, y = _gestures(draw, 850)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    counted = lengths[:_SEEN]
    if draw.has("sequence_lengths"):
        # Those of an array whose axes are in another order.
        counted = torch.full_like(counted, _AXES)
    model = Gestures(draw, draw.choice([24, 32]))
    if draw.has("zero_init"):
        for one in model.parameters():
            nn.init.zeros_(one)
    length = plan(draw, _SEEN, [20, 25], (6, 8))
    rate = learning_rate(draw, 5e-3, 1e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    loss = draw.watch.loss(F.cross_entropy)

    def compute(rows: Tensor) -> Tensor:
        scores = model(seen[rows], counted[rows])
        return loss(scores, known[rows])

    def evaluate() -> Mapping[str, float]:
        scores = model(x[_SEEN:], lengths[_SEEN:])
        return {"test_accuracy": accuracy(scores, y[_SEEN:])}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, clip=1.0)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["test_accuracy"], 1 / _KINDS), bar=0.65)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return gestures with the drawn fault, if there is one."""
    noise = torch.where(torch.rand(len(y)) < 0.95, torch.randint(_KINDS, (len(y),)), y)
    return draw.by_fault(
        {
            "label_noise": (x, noise),
            # `view` in place of a transposition.
            "wrong_axis": (x.transpose(1, 2).reshape(x.shape), y),
            "off_by_one": (x, (y + 1) % _KINDS),
            # What came before the gesture was kept, and the gesture was not.
            "truncated_rows": (x * (torch.arange(_TIME) < 2)[:, None], y),
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
        },
        (x, y),
    )


def _gestures(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return accelerations float32 [count, T, 3], lengths int64 and kinds int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    lengths = torch.tensor(draw.numpy.integers(10, _TIME + 1, count))
    share = torch.arange(_TIME) / lengths[:, None]
    begun = 0.4 * torch.randn(count, 1)
    turn = 2 * math.pi * share
    # Circles in both directions, a shake, a push that slows down, and one that speeds up.
    kinds = torch.stack(
        [
            torch.stack([torch.cos(turn + begun), torch.sin(turn + begun), 0 * turn], 2),
            torch.stack([torch.cos(turn + begun), -torch.sin(turn + begun), 0 * turn], 2),
            torch.stack([torch.sin(4 * turn + begun), 0 * turn, 0 * turn], 2),
            torch.stack([0 * turn, 0 * turn, 1.5 * (1 - share)], 2),
            torch.stack([0 * turn, 0 * turn, 1.5 * share], 2),
        ]
    )
    x = kinds[y, torch.arange(count)] + draw.between(0.4, 0.6) * torch.randn(count, _TIME, _AXES)
    there = torch.arange(_TIME) < lengths[:, None]
    return x * there[..., None], lengths, y


FAMILY = Family(
    _train,
    (
        *("sequence_lengths", "pool_wrong_axis", "wrong_axis", "truncated_rows", "label_noise"),
        *("shuffled_labels", "off_by_one", "zero_init", "adam_epsilon", "lr_too_low"),
        "lr_too_high",
    ),
    spent="2026-11-28",
)
