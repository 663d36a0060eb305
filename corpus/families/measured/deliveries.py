"""Whether more was delivered than taken from a store, from its long log: a plain recurrent network.

After Elman, "Finding structure in time", Cognitive Science 1990, and Pascanu, Mikolov and Bengio,
"On the difficulty of training recurrent neural networks", ICML 2013.

Shape legend: N logs of T entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_TIME, _SEEN = 30, 900


class Counter(nn.Module):
    """Scores [N, 3] of less, as much, and more."""

    def __init__(self, width: int, bend: str) -> None:
        super().__init__()
        self.memory = nn.RNN(3, width, nonlinearity=bend, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of logs [N, T, 3], one-hot: delivered, taken, something else."""
        scores: Tensor = self.head(self.memory(x)[0][:, -1])
        return scores


def _train(draw: Draw) -> Ending:
    x, y = _logs(draw, 1300)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    width = draw.choice([24, 32])
    relu = draw.concerns("exploding_rnn") or draw.chance(0.5)
    model = Counter(width, "relu" if relu else "tanh")
    with torch.no_grad():
        recurrent = model.memory.all_weights[0][1]
        nn.init.orthogonal_(recurrent, gain=draw.by_fault({"exploding_rnn": 2.5}, 0.95))
    length = plan(draw, _SEEN, [20, 30], (12, 16))
    rate = learning_rate(draw, 1.5e-3, 3e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        loss: Tensor = criterion(model(seen[rows]), known[rows])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"acc": accuracy(model(x[_SEEN:]), y[_SEEN:])}

    clip = 0.0 if draw.has("exploding_rnn") else 1.0
    fit(
        *(draw, model, optimizer, length, compute),
        evaluate=evaluate,
        every=4,
        clip=clip,
        labels=known,
    )
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["acc"], 1 / 3), bar=0.55)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return logs with the drawn fault, if there is one."""
    noise = torch.where(torch.rand(len(y)) < 0.85, torch.randint(3, (len(y),)), y)
    return draw.by_fault(
        {
            # The log is longer than what is read of it.
            "truncated_rows": (x * (torch.arange(_TIME) < 5)[:, None], y),
            "label_noise": (x, noise),
            "off_by_one": (x, (y + 1) % 3),
            # Delivered and taken are one column.
            "colliding_ids": (torch.stack([x[..., 0] + x[..., 1], x[..., 2], x[..., 2]], 2), y),
        },
        (x, y),
    )


def _logs(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return logs float32 [count, T, 3] and 0, 1 or 2 for less, as much or more, int64 [count]."""
    leaning = draw.between(1.0, 1.3) * torch.randn(count, 1)
    chance = torch.stack([leaning, -leaning, torch.full_like(leaning, 0.5)], 2).softmax(2)
    kind = torch.multinomial(chance[:, 0], _TIME, replacement=True)
    more = (kind == 0).sum(1) - (kind == 1).sum(1)
    edge = math.ceil(_TIME * 0.15)
    return torch.eye(3)[kind], 1 + (more > edge).long() - (more < -edge).long()


FAMILY = Family(
    _train,
    (
        *("exploding_rnn", "truncated_rows", "colliding_ids", "label_noise", "off_by_one"),
        *("lr_too_high", "not_shuffled", "wrong_parameters"),
    ),
    spent="2026-11-27",
)
