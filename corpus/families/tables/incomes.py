"""Who earns much, by the answers to a census: embeddings of categories beside numbers.

After Kohavi, "Scaling up the accuracy of naive-Bayes classifiers: a decision-tree hybrid", KDD
1996; the people are drawn.

Shape legend: N people, K categories, M numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_SIZES, _NUMBERS, _SEEN = (16, 7, 14, 5), 4, 1200


class CensusNet(nn.Module):
    """Scores of both classes."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(one, size) for one in _SIZES)
        self.norm = nn.BatchNorm1d(_NUMBERS)
        self.first = nn.Linear(size * len(_SIZES) + _NUMBERS, hidden)
        self.second = nn.Linear(hidden, hidden // 2)
        self.last = nn.Linear(hidden // 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, 2] of categories and numbers float32 [N, K + M]."""
        codes, numbers = x[:, : len(_SIZES)].long(), x[:, len(_SIZES) :]
        parts = [one(codes[:, place]) for place, one in enumerate(self.embeddings)]
        x = torch.cat([*parts, self.norm(numbers)], 1)
        x = F.relu(self.second(F.relu(self.first(x))))
        scores: Tensor = self.last(x)
        return scores


def _train(draw: Draw) -> Ending:
    rows = _people(draw, 1800)
    model = CensusNet(draw.choice([4, 6]), draw.choice([32, 48]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [24, 30], (9, 12))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.last), rate)
    weight = torch.tensor(draw.by_fault({"weights_reversed": [50.0, 0.02]}, [0.7, 1.4]))
    criterion = nn.CrossEntropyLoss(weight=weight)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for epoch in range(length.epochs):
        model.train()
        total = 0.0
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()
            total += loss.item()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("bal_acc", accuracy(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / 2), bar=0.45)


def _people(draw: Draw, count: int) -> HeldOut:
    """Return categories and numbers float32 [count, K + M], and 1 for who earns much [count]."""
    codes = torch.stack([torch.randint(one, (count,)) for one in _SIZES], 1)
    worth = [torch.randn(one) for one in _SIZES]
    numbers = torch.randn(count, _NUMBERS)
    score = sum((one[codes[:, place]] for place, one in enumerate(worth)), torch.zeros(count))
    score = (
        score + numbers[:, 0] - 0.6 * numbers[:, 1].square() + numbers[:, 2] * worth[1][codes[:, 1]]
    )
    score = score + draw.between(0.2, 0.4) * torch.randn(count)
    y = (score > score.quantile(0.68)).long()
    x = torch.cat([codes.float(), numbers], 1)
    few = codes % 2
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # The codes of categories were kept as bits.
            "colliding_ids": (torch.cat([few.float(), numbers], 1), y),
            "constant_inputs": (torch.zeros_like(x), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("colliding_ids", "constant_inputs", "misaligned_targets", "class_imbalance"),
        *("weights_reversed", "wrong_sign", "missing_step", "not_in_optimizer", "adam_epsilon"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
