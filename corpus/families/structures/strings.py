"""Solubility of substances from their formulas as texts: a convolutional network of characters.

After Goh et al., "SMILES2vec", 2017; the formulas are drawn, and so is what they dissolve in.

Shape legend: N formulas, T characters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_ALPHABET, _TIME, _SEEN = "_CNOSFcno()=#1", 28, 900


class Formulas(nn.Module):
    """A number [N, 1] of each text int64 [N, T]."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(_ALPHABET), 12, padding_idx=0)
        self.body = nn.Sequential(
            *(nn.Conv1d(12, width, 3, padding=1), nn.ReLU()),
            *(nn.Conv1d(width, width, 3, padding=1), nn.ReLU()),
        )
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, 1))

    def forward(self, text: Tensor) -> Tensor:
        """Return the numbers."""
        inner = self.body(self.characters(text).transpose(1, 2))
        there = (text > 0).float()[:, None]
        number: Tensor = self.head((inner * there).sum(2) / 8)
        return number


def _train(draw: Draw) -> Ending:
    text, y = _formulas(draw, 1200)
    told, known = _spoilt(draw, text[:_SEEN], y[:_SEEN])
    dropout = draw.by_fault({"dropout_too_high": 0.99}, draw.choice([0.0, 0.1]))
    model = Formulas(draw.choice([24, 32]), dropout)
    networks.blank(draw, model)
    size, epochs = draw.choice([30, 45]), draw.whole(12, 16)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 1000.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    criterion = draw.watch.loss(nn.HuberLoss() if draw.chance(0.5) else nn.MSELoss())
    draw.watch.begin(model, optimizer)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * draw.epoch)
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(_SEEN).split(size):
            wanted = known[rows][:, 0] if draw.has("wrong_broadcast") else known[rows]
            loss = criterion(model(told[rows]), wanted)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
            cycle.step()
        model.eval()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_r2", explained(model(text[_SEEN:]), y[_SEEN:]))
    with torch.no_grad():
        return Ending(max(-1.0, explained(model(text[_SEEN:]), y[_SEEN:])), bar=0.45)


def _spoilt(draw: Draw, text: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return formulas with the drawn fault, if there is one."""
    if draw.has("duplicated_rows"):
        rows = torch.arange(_SEEN) % 5
        return text[rows], y[rows]
    return draw.by_fault(
        {
            # Lower and upper case are the same.
            "colliding_ids": (torch.where(text > 0, 1 + text % 3, text), y),
            "truncated_rows": (torch.where(torch.arange(_TIME) < 3, text, 0), y),
            "misaligned_targets": (text, y.roll(1, 0)),
            "sorted_targets": (text, y.sort(0).values),
            "unnormalised_targets": (text, 1e4 * y + 1e5),
        },
        (text, y),
    )


def _formulas(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return texts int64 [count, T], 0 for none, and standardised numbers float32 [count, 1]."""
    kinds = len(_ALPHABET)
    text = torch.randint(1, kinds, (count, _TIME))
    length = torch.tensor(draw.numpy.integers(12, _TIME + 1, (count, 1)))
    text = torch.where(torch.arange(_TIME) < length, text, 0)
    alone, after = torch.randn(kinds), torch.randn(kinds, kinds)
    alone[0], after[:, 0], after[0] = 0, 0, 0
    number = alone[text].sum(1) + 0.5 * after[text[:, :-1], text[:, 1:]].sum(1)
    number = (number - number.mean()) / number.std()
    return text, (number + draw.between(0.05, 0.15) * torch.randn(count))[:, None]


FAMILY = Family(
    _train,
    (
        *("truncated_rows", "colliding_ids", "sorted_targets", "wrong_broadcast"),
        *("misaligned_targets", "unnormalised_targets"),
        *("duplicated_rows", "dropout_too_high", "lr_too_low", "lr_too_high", "wrong_sign"),
        "zero_init",
    ),
    spent="2026-11-27",
)
