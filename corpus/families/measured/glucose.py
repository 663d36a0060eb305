"""The sugar in the blood of the next hours: an LSTM that reads, and one that goes on by itself.

After Sutskever, Vinyals and Le, "Sequence to sequence learning with neural networks", NeurIPS 2014,
and Bengio et al., "Scheduled sampling", NeurIPS 2015; the patients are drawn.

Shape legend: N windows of P times before and H times after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_PAST, _NEXT, _SEEN = 12, 5, 700


class Forecaster(nn.Module):
    """The next values."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        self.encoder = nn.LSTM(1, size, batch_first=True)
        self.decoder = nn.LSTMCell(1, size)
        self.head = nn.Linear(size, 1)

    def forward(self, past: Tensor, told: Tensor | None = None) -> Tensor:
        """Return values [N, H] after values [N, P]; the decoder may be told those before [N, H]."""
        _, (state, memory) = self.encoder(past[:, :, None])
        state, memory = state[0], memory[0]
        if self.draw.has("state_reset"):
            # The decoder begins with zeros, as it does without an argument.
            state, memory = torch.zeros_like(state), torch.zeros_like(memory)
        value, found = past[:, -1:], []
        for step in range(_NEXT):
            state, memory = self.decoder(value, (state, memory))
            # What changes since the time before.
            value = value + self.head(state)
            found.append(value)
            if told is not None and torch.rand(()) < 0.5:
                value = told[:, step : step + 1]
        return torch.cat(found, 1)


def _train(draw: Draw) -> Ending:
    past, coming = _patients(draw, 1000)
    seen, known = _spoilt(draw, past[:_SEEN], coming[:_SEEN])
    model = Forecaster(draw, draw.choice([24, 32]))
    if draw.has("large_init"):
        for one in model.parameters():
            nn.init.normal_(one, std=5.0)
    length = plan(draw, _SEEN, [14, 20], (10, 13))
    rate = learning_rate(draw, 5e-3, 1e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    criterion = nn.L1Loss()
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        wanted = known[rows]
        found: Tensor = model(seen[rows], wanted)
        if draw.has("wrong_loss"):
            # Signs cancel each other.
            return (found - wanted).mean()
        loss: Tensor = criterion(found, wanted)
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"horizon_r2": explained(model(past[_SEEN:]), coming[_SEEN:])}

    chosen = evaluate if draw.chance(0.5) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, clip=1.0)
    model.eval()
    with torch.no_grad():
        return Ending(evaluate()["horizon_r2"], bar=0.6)


def _spoilt(draw: Draw, past: Tensor, coming: Tensor) -> tuple[Tensor, Tensor]:
    """Return windows with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            "time_reversed": (past.flip(1), coming),
            "misaligned_targets": (past, coming.roll(1, 0)),
            # Milligrams in a decilitre, and standardised values.
            "unnormalised_targets": (past, 150 + 50 * coming),
            # The forecast begins an hour late.
            "wrong_shift": (past.roll(_NEXT, 1), coming),
            "shuffled_labels": (past, coming[torch.randperm(len(coming))]),
        },
        (past, coming),
    )


def _patients(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return values float32 [count, P] and the next ones [count, H]."""
    time = torch.arange(_PAST + _NEXT) + 100 * torch.rand(count, 1)
    period = 8 + 3 * torch.rand(count, 1)
    meals = torch.sin(2 * math.pi * time / period) + 0.4 * torch.sin(4 * math.pi * time / period)
    level = 0.7 * torch.randn(count, 1)
    x = level + meals + draw.between(0.03, 0.08) * torch.randn(count, _PAST + _NEXT)
    return x[:, :_PAST].clone(), x[:, _PAST:].clone()


FAMILY = Family(
    _train,
    (
        *("state_reset", "time_reversed", "misaligned_targets", "wrong_shift", "shuffled_labels"),
        *("unnormalised_targets", "wrong_loss", "large_init", "wrong_parameters"),
        *("adam_epsilon", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
